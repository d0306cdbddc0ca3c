"""The models, held against the same networks put together out of torch's own layers."""

import re

import pytest
import torch
from torch import nn

from mhalib import MultiHeadAttention
from mhalib.attention import KeyValueCache, sinusoidal_positions
from mhalib.models import CLIP, GPT, MODELS, Captioner, PictureReader, SentenceReader, Transformer, ViT

D, H, F = 20, 2, 11  # hiddens, heads, width of the feed-forward networks
NORMS = pytest.mark.parametrize("norm", ["pre", "post"])
POSITIONS = pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
CLOSE = {"atol": 2e-5, "rtol": 1e-5}


def _transformer(device="cpu", **settings):
    """B = 3, K = 5 source tokens, Q = 4 target tokens."""
    torch.manual_seed(0)
    model = Transformer(13, 7, D, H, 3, F, max_tokens=11, **settings).to(device).eval()
    source, target = torch.randint(13, (3, 5), device=device), torch.randint(7, (3, 4), device=device)
    return _shaken(model), (source, target, torch.tensor([5, 2, 3], device=device))


def _gpt(device="cpu", **settings):
    torch.manual_seed(0)
    model = GPT(7, D, H, 3, settings.pop("ffn_num_hiddens", F), max_tokens=11, **settings).to(device).eval()
    return _shaken(model), (torch.randint(7, (3, 5), device=device),)


def _vit(device="cpu"):
    torch.manual_seed(0)
    return _shaken(ViT(3, 6, 4, 2, D, H, 3, F).to(device).eval()), (torch.randn(5, 6, 4, device=device),)


def _captioner(device="cpu"):
    torch.manual_seed(0)
    model = Captioner(7, 6, 4, 2, D, H, 3, F, max_tokens=11).to(device).eval()
    return _shaken(model), (torch.randn(3, 6, 4, device=device), torch.randint(7, (3, 5), device=device))


def _reader(device="cpu"):
    torch.manual_seed(0)
    model = PictureReader(7, 5, 6, 4, 2, D, H, 3, F, max_tokens=11).to(device).eval()
    questions = torch.randint(7, (3, 5), device=device)
    return _shaken(model), (torch.randn(3, 6, 4, device=device), questions, torch.tensor([5, 2, 1], device=device))


def _clip(device="cpu"):
    """2 pictures of 6 patches, 4 texts of 5 tokens."""
    torch.manual_seed(0)
    pictures = {"height": 6, "width": 4, "num_hiddens": 12, "num_heads": 3, "num_layers": 3, "dropout": 0.0}
    model = CLIP(7, 5, D, H, 3, F, pictures=pictures, max_tokens=11).to(device).eval()
    tokens = torch.randint(7, (4, 5), device=device)
    return _shaken(model), (torch.randn(2, 3, 6, 4, device=device), tokens, torch.tensor([5, 2, 1, 4], device=device))


def _sentence_reader(device="cpu"):
    torch.manual_seed(0)
    model = SentenceReader(7, 5, D, H, max_tokens=11).to(device).eval()
    return _shaken(model), (torch.randint(7, (3, 6), device=device), torch.tensor([6, 2, 1], device=device))


ALL = {
    "Transformer": _transformer,
    "GPT": _gpt,
    "ViT": _vit,
    "Captioner": _captioner,
    "PictureReader": _reader,
    "CLIP": _clip,
    "SentenceReader": _sentence_reader,
}


def _shaken(model):
    """No weight is one or zero, as torch's normalisations begin, so that none can be forgotten."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def _copy_attention(theirs, ours):
    theirs.in_proj_weight.copy_(torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight]))
    theirs.in_proj_bias.copy_(torch.cat([ours.W_q.bias, ours.W_k.bias, ours.W_v.bias]))
    theirs.out_proj.load_state_dict(ours.W_o.state_dict())


def _torch_stack(ours, kind, norm, device):
    """torch's `TransformerEncoder` or `TransformerDecoder` with the weights of one of our stacks."""
    is_decoder = kind is nn.TransformerDecoderLayer
    settings = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": norm == "pre"}
    layers = [kind(D, H, F, **settings).to(device) for _ in ours.layers]
    with torch.no_grad():
        for theirs, mine in zip(layers, ours.layers, strict=True):
            _copy_attention(theirs.self_attn, mine.attention)
            skips = [mine.attention_skip]
            if is_decoder:
                _copy_attention(theirs.multihead_attn, mine.cross_attention)
                skips.append(mine.cross_skip)
            skips.append(mine.ffn_skip)
            for number, skip in enumerate(skips, 1):
                getattr(theirs, f"norm{number}").load_state_dict(skip.norm.state_dict())
            theirs.linear1.load_state_dict(mine.ffn.widen.state_dict())
            theirs.linear2.load_state_dict(mine.ffn.narrow.state_dict())

    def run(x, *memory, mask=None, padding=None):
        for layer in layers:
            if is_decoder:
                x = layer(x, *memory, tgt_mask=mask, memory_key_padding_mask=padding)
            else:
                x = layer(x, src_mask=mask, src_key_padding_mask=padding)
        return ours.norm(x) if norm == "pre" else x

    return run


def _embed(part, tokens, positions):
    x = part.embedding.weight[tokens]
    number = tokens.shape[1]
    if positions == "learned":
        return x + part.positions.table[:number]
    return x + sinusoidal_positions(number, D).to(x)


def _future(number, device):
    """torch's kind of mask: True is hidden."""
    return torch.ones(number, number, dtype=torch.bool, device=device).triu(1)


@NORMS
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_the_transformer_is_what_torchs_layers_make(norm, positions, device):
    model, (source, target, lens) = _transformer(device, norm=norm, positions=positions)
    encoder = _torch_stack(model.encoder, nn.TransformerEncoderLayer, norm, device)
    decoder = _torch_stack(model.decoder, nn.TransformerDecoderLayer, norm, device)
    padding = torch.arange(5, device=device) >= lens[:, None]
    memory = encoder(_embed(model.source, source, positions), padding=padding)
    x = decoder(_embed(model.target, target, positions), memory, mask=_future(4, device), padding=padding)
    expected = x @ model.readout.weight.T + model.readout.bias
    torch.testing.assert_close(model(source, target, lens)[0], expected, **CLOSE)


@NORMS
@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_gpt_is_what_torchs_layers_make(norm, positions, device):
    model, (tokens,) = _gpt(device, norm=norm, positions=positions)
    stack = _torch_stack(model.decoder, nn.TransformerEncoderLayer, norm, device)
    x = stack(_embed(model.tokens, tokens, positions), mask=_future(5, device))
    torch.testing.assert_close(model(tokens)[0], x @ model.readout.weight.T + model.readout.bias, **CLOSE)


def _rotated(x):
    """(B, h, N, d), each pair of channels as a complex number times a power of a unit."""
    number, width = x.shape[-2:]
    turns = torch.arange(number)[:, None] * 10000.0 ** (-torch.arange(0, width, 2).double() / width)
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(turns), turns)).flatten(-2).to(x)


def test_a_rotary_gpt_is_what_torchs_functions_make():
    """`torch.nn` has no rotary layer; its functions make one, with complex numbers."""
    torch.manual_seed(0)
    model = _shaken(GPT(7, 12, 3, 2, F, positions="rotary").eval())
    tokens = torch.randint(7, (2, 5))
    x = model.tokens.embedding.weight[tokens]
    for layer in model.decoder.layers:
        seen = layer.attention_skip.norm(x)
        a = layer.attention
        q, k, v = (w(seen).view(2, 5, 3, 4).transpose(1, 2) for w in (a.W_q, a.W_k, a.W_v))
        found = nn.functional.scaled_dot_product_attention(_rotated(q), _rotated(k), v, is_causal=True)
        x = x + a.W_o(found.transpose(1, 2).reshape(2, 5, 12))
        x = x + layer.ffn.narrow(nn.functional.gelu(layer.ffn.widen(layer.ffn_skip.norm(x))))
    torch.testing.assert_close(model(tokens)[0], model.readout(model.decoder.norm(x)), **CLOSE)


def test_a_gpt_of_attention_alone_has_nothing_else():
    model, (tokens,) = _gpt(ffn_num_hiddens=0)
    assert not [name for name, _ in model.named_parameters() if "ffn" in name]
    x = _embed(model.tokens, tokens, "learned")
    for layer in model.decoder.layers:
        seen = layer.attention_skip.norm(x)
        attention = nn.MultiheadAttention(D, H, batch_first=True)
        with torch.no_grad():
            _copy_attention(attention, layer.attention)
        x = x + attention(seen, seen, seen, attn_mask=_future(5, "cpu"))[0]
    torch.testing.assert_close(model(tokens)[0], model.readout(model.decoder.norm(x)), **CLOSE)


def test_the_vit_is_what_torchs_layers_make(device):
    model, (images,) = _vit(device)
    stack = _torch_stack(model.encoder, nn.TransformerEncoderLayer, "pre", device)
    cut = nn.functional.unfold(images[:, None], 2, stride=2).transpose(1, 2)
    x = cut @ model.patches.embedding.weight.T + model.patches.embedding.bias + model.patches.positions.table
    x = stack(torch.cat([model.class_token.expand(5, 1, D), x], 1))
    torch.testing.assert_close(model(images)[0], model.readout(x[:, 0]), **CLOSE)


def test_the_captioner_is_what_torchs_layers_make(device):
    model, (images, target) = _captioner(device)
    encoder = _torch_stack(model.encoder, nn.TransformerEncoderLayer, "pre", device)
    decoder = _torch_stack(model.decoder, nn.TransformerDecoderLayer, "pre", device)
    cut = nn.functional.unfold(images[:, None], 2, stride=2).transpose(1, 2)
    memory = encoder(model.patches.embedding(cut) + model.patches.positions.table)
    x = decoder(_embed(model.target, target, "learned"), memory, mask=_future(5, device))
    torch.testing.assert_close(model(images, target)[0], model.readout(x), **CLOSE)


def test_the_reader_is_what_torchs_layers_make():
    """Each question is asked alone here, without padding."""
    model, (images, questions, lens) = _reader()
    encoder = _torch_stack(model.encoder, nn.TransformerEncoderLayer, "pre", "cpu")
    reader = _torch_stack(model.reader, nn.TransformerDecoderLayer, "pre", "cpu")
    cut = nn.functional.unfold(images[:, None], 2, stride=2).transpose(1, 2)
    memory = encoder(model.patches.embedding(cut) + model.patches.positions.table)
    found, _ = model(images, questions, lens)
    for b, length in enumerate(lens.tolist()):
        x = reader(_embed(model.question, questions[b : b + 1, :length], "learned"), memory[b : b + 1])
        torch.testing.assert_close(found[b], model.readout(x[0, 0]), **CLOSE)


@POSITIONS
@NORMS
@pytest.mark.parametrize("need_weights", [True, False])
def test_gpt_does_not_see_the_future(positions, norm, need_weights):
    """The gradient of each logit with respect to later tokens' vectors is zero, not small."""
    model, (tokens,) = _gpt(positions=positions, norm=norm)
    vectors = []
    model.tokens.embedding.register_forward_hook(lambda *args: vectors.append(args[-1].requires_grad_()))
    logits, _ = model(tokens, need_weights=need_weights)
    for n in range(5):
        (gradient,) = torch.autograd.grad(logits[:, n].square().sum(), vectors[0], retain_graph=True)
        size = gradient.abs().amax((0, 2))
        assert (size[: n + 1] > 0).all()
        assert (size[n + 1 :] == 0).all()


@POSITIONS
@NORMS
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_transformer_sees_no_future_and_no_padding(positions, norm, need_weights):
    model, (source, target, lens) = _transformer(positions=positions, norm=norm)
    vectors = []
    for part in (model.source, model.target):
        part.embedding.register_forward_hook(lambda *args: vectors.append(args[-1].requires_grad_()))
    logits, _ = model(source, target, lens, need_weights=need_weights)
    for n in range(4):
        read, written = torch.autograd.grad(logits[:, n].square().sum(), vectors, retain_graph=True)
        size = written.abs().amax((0, 2))
        assert (size[: n + 1] > 0).all()
        assert (size[n + 1 :] == 0).all()
        is_real = torch.arange(5) < lens[:, None]
        assert torch.equal(read.abs().amax(2) > 0, is_real)


@POSITIONS
def test_what_stands_in_the_padding_does_not_matter(positions, device):
    model, (source, target, lens) = _transformer(device, positions=positions)
    padding = torch.arange(5, device=device) >= lens[:, None]
    other = torch.where(padding, (source + 1) % 13, source)
    assert not torch.equal(source, other)
    assert torch.equal(model(source, target, lens)[0], model(other, target, lens)[0])
    longer = torch.cat([source, source], 1)
    torch.testing.assert_close(model(source, target, lens)[0], model(longer, target, lens)[0], **CLOSE)


def test_what_stands_behind_a_question_does_not_matter():
    model, (images, questions, lens) = _reader()
    padding = torch.arange(5) >= lens[:, None]
    other = torch.where(padding, (questions + 1) % 7, questions)
    assert torch.equal(model(images, questions, lens)[0], model(images, other, lens)[0])
    assert not torch.equal(model(images, questions)[0], model(images, other)[0])


CHUNKS = pytest.mark.parametrize("chunks", [[1] * 9, [5, 4], [1, 8], [3, 1, 4, 1], [9]])


@POSITIONS
@NORMS
@CHUNKS
def test_gpt_with_a_cache_is_gpt_without(positions, norm, chunks, device):
    model, _ = _gpt(device, positions=positions, norm=norm)
    tokens = torch.randint(7, (3, 9), device=device)
    expected, expected_weights = model(tokens, need_weights=True)
    for need_weights in (True, False):
        caches, start = model.new_caches(), 0
        for length in chunks:
            stop = start + length
            logits, weights = model(tokens[:, start:stop], need_weights=need_weights, caches=caches)
            torch.testing.assert_close(logits, expected[:, start:stop], atol=1e-5, rtol=1e-6)
            if need_weights:
                for found, whole in zip(weights["decoder self"], expected_weights["decoder self"], strict=True):
                    torch.testing.assert_close(found, whole[:, :, start:stop, :stop], atol=1e-6, rtol=0)
            start = stop
        assert [len(cache) for cache in caches] == [9] * 3


@POSITIONS
@NORMS
@CHUNKS
def test_the_transformer_with_a_cache_is_the_one_without(positions, norm, chunks, device):
    model, (source, _, lens) = _transformer(device, positions=positions, norm=norm)
    target = torch.randint(7, (3, 9), device=device)
    expected, expected_weights = model(source, target, lens, need_weights=True)
    memory, _ = model.encode(source, lens)
    caches, start = model.new_caches(), 0
    for length in chunks:
        stop = start + length
        logits, weights = model.decode(target[:, start:stop], memory, lens, need_weights=True, caches=caches)
        torch.testing.assert_close(logits, expected[:, start:stop], atol=1e-5, rtol=1e-6)
        for found, whole in zip(weights["decoder self"], expected_weights["decoder self"], strict=True):
            torch.testing.assert_close(found, whole[:, :, start:stop, :stop], atol=1e-6, rtol=0)
        for found, whole in zip(weights["cross"], expected_weights["cross"], strict=True):
            torch.testing.assert_close(found, whole[:, :, start:stop], atol=1e-6, rtol=0)
        start = stop
    assert [(len(cache.own), len(cache.memory)) for cache in caches] == [(9, 5)] * 3


@POSITIONS
def test_in_double_a_cache_agrees_to_the_last_digits(positions):
    """To 1e-6 and far beyond: what is left above is rounding."""
    model, (tokens,) = _gpt(positions=positions)
    model.double()
    caches = model.new_caches()
    found = torch.cat([model(tokens[:, n : n + 1], caches=caches)[0] for n in range(5)], 1)
    torch.testing.assert_close(found, model(tokens)[0], atol=1e-12, rtol=0)


SHAPES = {
    "Transformer": {"encoder self": (3, H, 5, 5), "decoder self": (3, H, 4, 4), "cross": (3, H, 4, 5)},
    "GPT": {"decoder self": (3, H, 5, 5)},
    "ViT": {"encoder self": (5, H, 7, 7)},
    "Captioner": {"encoder self": (3, H, 6, 6), "decoder self": (3, H, 5, 5), "cross": (3, H, 5, 6)},
    "PictureReader": {"encoder self": (3, H, 6, 6), "decoder self": (3, H, 5, 5), "cross": (3, H, 5, 6)},
    "CLIP": {"encoder self": (2, 3, 7, 7), "decoder self": (4, H, 5, 5)},
    "SentenceReader": {"encoder self": (3, H, 6, 6)},
}


@pytest.mark.parametrize("name", ALL)
def test_weights_have_the_documented_places(name, device):
    """A dict from kind to a list with one (B, h, Q, K) per layer; the rows sum to 1; the same output without."""
    model, inputs = ALL[name](device)
    output, weights = model(*inputs, need_weights=True)
    layers = model.attention_layers()
    assert list(weights) == list(layers) == list(SHAPES[name])
    for kind, of_kind in weights.items():
        is_single = name == "SentenceReader" or (name == "PictureReader" and kind != "encoder self")
        assert isinstance(of_kind, list)
        assert len(of_kind) == len(layers[kind]) == (1 if is_single else 3)
        for each in of_kind:
            assert tuple(each.shape) == SHAPES[name][kind]
            torch.testing.assert_close(each.sum(-1), torch.ones_like(each[..., 0]))
            assert (each >= 0).all()
    plain, none = model(*inputs)
    assert none is None
    torch.testing.assert_close(plain, output, **CLOSE)


@pytest.mark.parametrize("name", ALL)
def test_weights_stand_where_their_layers_stand(name):
    """Each layer, called by the model, returns just the weights in its place."""
    model, inputs = ALL[name]()
    seen = {}
    for kind, of_kind in model.attention_layers().items():
        for number, layer in enumerate(of_kind):
            assert isinstance(layer, MultiHeadAttention)
            layer.register_forward_hook(lambda *args, place=(kind, number): seen.__setitem__(place, args[-1][1]))
    _, weights = model(*inputs, need_weights=True)
    assert len(seen) == len([m for m in model.modules() if isinstance(m, MultiHeadAttention)])
    assert sum(map(len, weights.values())) == len(seen)
    for (kind, number), each in seen.items():
        assert weights[kind][number] is each


def _is_hidden(weights, mask):
    return all((each[mask.expand_as(each)] == 0).all() for each in weights)


def test_weights_on_padding_and_future_are_zero():
    model, (source, target, lens) = _transformer()
    _, weights = model(source, target, lens, need_weights=True)
    padding = (torch.arange(5) >= lens[:, None])[:, None, None]
    assert _is_hidden(weights["encoder self"], padding)
    assert _is_hidden(weights["cross"], padding)
    assert _is_hidden(weights["decoder self"], _future(4, "cpu"))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("need_weights", [True, False])
def test_nothing_is_kept(name, need_weights):
    """No module has an attribute more than before, or a tensor that is neither parameter nor buffer."""
    model, inputs = ALL[name]()
    before = {path: set(vars(module)) for path, module in model.named_modules()}
    model(*inputs, need_weights=need_weights)
    for path, module in model.named_modules():
        assert set(vars(module)) == before[path]
        held = [key for key, value in vars(module).items() if _holds_a_tensor(value)]
        assert set(held) <= {"_parameters", "_buffers"}, path
        assert not module._buffers


def _holds_a_tensor(value):
    if isinstance(value, dict):
        return any(map(_holds_a_tensor, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_a_tensor, value))
    return isinstance(value, (torch.Tensor, KeyValueCache))


@pytest.mark.parametrize("name", ["Transformer", "Captioner"])
def test_encode_and_decode_are_the_two_halves(name):
    model, inputs = ALL[name]()
    source, target, *lens = inputs
    memory, read = model.encode(source, *lens, need_weights=True)
    logits, written = model.decode(target, memory, *lens, need_weights=True)
    whole, weights = model(*inputs, need_weights=True)
    assert torch.equal(logits, whole)
    for kind, of_kind in {**read, **written}.items():
        assert all(map(torch.equal, of_kind, weights[kind]))
    assert model.encode(source, *lens)[1] == {"encoder self": []}
    assert model.decode(target, memory, *lens)[1] == {"decoder self": [], "cross": []}


@pytest.mark.parametrize("name", ALL)
def test_settings_make_the_same_model_again(name):
    model, inputs = ALL[name]()
    again = MODELS[name](**model.settings).eval()
    assert again.settings == model.settings
    assert not {"self", "__class__"} & set(model.settings)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(*inputs)[0], model(*inputs)[0])
    assert str(again) == str(model)


@pytest.mark.parametrize("settings", [{"norm": "post"}, {"positions": "rotary", "dropout": 0.3}])
def test_settings_hold_what_was_not_the_default(settings):
    model = GPT(7, D, H, **settings)
    assert settings.items() <= model.settings.items()
    assert str(GPT(**model.settings)) == str(model)


@pytest.mark.parametrize("name", ALL)
def test_num_weights_counts_what_is_learned(name):
    model, _ = ALL[name]()
    assert model.num_weights == sum(value.numel() for value in model.state_dict().values())


@pytest.mark.parametrize("name", ["Transformer", "GPT"])
def test_dropout_is_for_training(name):
    model, inputs = ALL[name](dropout=0.5)
    plain, _ = ALL[name]()
    torch.testing.assert_close(model(*inputs)[0], plain(*inputs)[0])
    model.train()
    assert not torch.equal(model(*inputs)[0], model(*inputs)[0])


def test_every_parameter_is_learned():
    for name, made in ALL.items():
        model, inputs = made()
        model.zero_grad()
        model(*inputs)[0].square().sum().backward()
        for key, parameter in model.named_parameters():
            # W_k.bias adds the same to all scores of a query, which softmax cannot see; rounding alone is left
            assert parameter.grad is not None, (name, key)
            assert parameter.grad.abs().max() > 0 or key.endswith("W_k.bias"), (name, key)


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        (torch.zeros(3, 12, dtype=torch.long), ValueError, "12 tokens, but the model has only max_tokens=11 positions"),
        (torch.zeros(3, 5), TypeError, "tokens must hold integers, int64 or int32, got torch.float32"),
        (torch.zeros(3, 5, dtype=torch.bool), TypeError, "tokens must hold integers, int64 or int32, got torch.bool"),
        (torch.zeros(5, dtype=torch.long), ValueError, "tokens must have 2 axes, got shape (5,)"),
        ([[1, 2]], TypeError, "tokens must be a torch.Tensor, got list: [[1, 2]]"),
        (torch.tensor([[1, 7, 9, 3]]), ValueError, "tokens holds 9, but ids go from 0 to 6"),
        (torch.tensor([[1, -2, 9, 3]]), ValueError, "tokens holds -2, but ids go from 0 to 6"),
    ],
)
def test_what_are_no_tokens_is_refused(tokens, error, message):
    with pytest.raises(error, match=re.escape(message)):
        _gpt()[0](tokens)


def test_wrong_ids_are_refused_on_a_gpu_too(device):
    """Where they would otherwise break off all that the process does there later."""
    model, (tokens,) = _gpt(device)
    tokens[1, 3] = 7
    with pytest.raises(ValueError, match="tokens holds 7, but ids go from 0 to 6"):
        model(tokens)


def test_source_and_target_are_told_apart():
    model, (source, target, lens) = _transformer()
    with pytest.raises(ValueError, match="source holds 13, but ids go from 0 to 12"):
        model(torch.full_like(source, 13), target, lens)
    with pytest.raises(ValueError, match="target holds 7, but ids go from 0 to 6"):
        model(source, torch.full_like(target, 7), lens)
    with pytest.raises(TypeError, match=re.escape("target must hold integers")):
        model(source, target.float(), lens)
    with pytest.raises(TypeError, match=r"source must be a torch\.Tensor, got list"):
        model([[1]], target)


def test_a_cache_that_is_full_is_named():
    model, _ = _gpt()
    caches = model.new_caches()
    model(torch.zeros(1, 11, dtype=torch.long), caches=caches)
    with pytest.raises(ValueError, match="12 tokens, but the model has only max_tokens=11 positions"):
        model(torch.zeros(1, 1, dtype=torch.long), caches=caches)


def test_integers_of_32_bits_and_empty_batches_are_tokens():
    model, (tokens,) = _gpt()
    assert torch.equal(model(tokens.int())[0], model(tokens)[0])
    assert model(tokens[:0])[0].shape == (0, 5, 7)


@pytest.mark.parametrize(
    ("kind", "settings", "error", "message"),
    [
        (GPT, {"vocab_size": 0}, ValueError, "vocab_size=0 must be at least 1"),
        (GPT, {"vocab_size": 7, "num_layers": 0}, ValueError, "num_layers=0 must be at least 1"),
        (GPT, {"vocab_size": 7, "num_heads": 5}, ValueError, "num_hiddens=64 is not divisible by num_heads=5"),
        (GPT, {"vocab_size": 7, "positions": "no"}, ValueError, "positions='no' must be one of ('none', "),
        (
            GPT,
            {"vocab_size": 7, "norm": "layer"},
            ValueError,
            "norm='layer' must be one of ('pre', 'post', 'after', 'both')",
        ),
        (GPT, {"vocab_size": 7, "dropout": 2}, ValueError, "dropout=2 must lie in [0, 1]"),
        (GPT, {"vocab_size": 7, "max_tokens": 0}, ValueError, "max_tokens=0 must be at least 1"),
        (
            Transformer,
            {"source_vocab_size": 7, "target_vocab_size": 1.5},
            TypeError,
            "vocab_size must be an integer, got float",
        ),
        (
            Transformer,
            {"source_vocab_size": 7, "target_vocab_size": 7, "ffn_num_hiddens": -1},
            ValueError,
            "ffn_num_hiddens=-1",
        ),
    ],
)
def test_wrong_sizes_are_refused(kind, settings, error, message):
    with pytest.raises(error, match=re.escape(message)):
        kind(**settings)
