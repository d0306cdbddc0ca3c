"""Models that look at pictures: patches against a loop, and what must not change when the input is rearranged."""

import pytest
import torch

from mhalib import decoding
from mhalib.models import CLIP, Captioner, PictureReader, ViT, patches, recomposed
from mhalib.variants import group_heads

B, HEIGHT, WIDTH, SIZE = 2, 6, 10, 2
N = (HEIGHT // SIZE) * (WIDTH // SIZE)  # 15
SMALL = {"height": HEIGHT, "width": WIDTH, "patch_size": SIZE, "num_hiddens": 21, "num_heads": 3, "ffn_num_hiddens": 11}


@pytest.fixture
def images():
    return torch.rand(B, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))


def make(kind, **settings):
    torch.manual_seed(1)
    return kind(**{**SMALL, **settings}).eval()


def captioner(**settings):
    return make(Captioner, vocab_size=13, max_tokens=7, num_layers=2, **settings)


def reader(**settings):
    return make(PictureReader, vocab_size=17, num_answers=5, max_tokens=7, num_layers=2, **settings)


@pytest.mark.parametrize(("height", "width", "size"), [(6, 10, 2), (8, 8, 4), (3, 9, 3), (5, 7, 1)])
def test_patches_are_squares_row_by_row(height, width, size):
    images = torch.arange(3.0 * height * width).view(3, height, width)
    expected = [
        [
            [float(images[b, size * r + i, size * c + j]) for i in range(size) for j in range(size)]
            for r in range(height // size)
            for c in range(width // size)
        ]
        for b in range(3)
    ]
    assert patches(images, size).tolist() == expected


@pytest.mark.parametrize(("height", "width", "size"), [(6, 10, 2), (9, 3, 3)])
def test_a_linear_map_of_patches_of_colours_is_a_convolution(height, width, size):
    torch.manual_seed(0)
    images, kernel = torch.randn(2, 3, height, width), torch.randn(7, 3, size, size)
    expected = torch.nn.functional.conv2d(images, kernel, stride=size).flatten(2).mT
    torch.testing.assert_close(patches(images, size) @ kernel.flatten(1).T, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("images", "size", "error", "message"),
    [
        (torch.zeros(2, 6, 10), 4, ValueError, "images have a height of 6, which is not divisible by patch_size=4"),
        (torch.zeros(2, 8, 10), 4, ValueError, "images have a width of 10, which is not divisible by patch_size=4"),
        (torch.zeros(6, 10), 2, ValueError, "images must have 3 axes"),
        (torch.zeros(2, 3, 6, 9), 2, ValueError, "images have a width of 9, which is not divisible by patch_size=2"),
        ([[1.0]], 2, TypeError, "images must be a torch.Tensor"),
        (torch.zeros(2, 6, 10), 0, ValueError, "patch_size=0 must be at least 1"),
    ],
)
def test_patches_name_what_is_wrong(images, size, error, message):
    with pytest.raises(error, match=message):
        patches(images, size)


def test_shapes_and_kinds_of_all_three(images, device):
    tokens = torch.randint(1, 13, (B, 4), generator=torch.Generator().manual_seed(0))
    images, tokens = images.to(device), tokens.to(device)
    logits, weights = make(ViT, num_classes=4, num_layers=2).to(device)(images, need_weights=True)
    assert logits.shape == (B, 4)
    assert {kind: [tuple(w.shape) for w in each] for kind, each in weights.items()} == {
        "encoder self": [(B, 3, N + 1, N + 1)] * 2
    }
    logits, weights = captioner().to(device)(images, tokens, need_weights=True)
    assert logits.shape == (B, 4, 13)
    assert {kind: [tuple(w.shape) for w in each] for kind, each in weights.items()} == {
        "encoder self": [(B, 3, N, N)] * 2,
        "decoder self": [(B, 3, 4, 4)] * 2,
        "cross": [(B, 3, 4, N)] * 2,
    }
    logits, weights = reader().to(device)(images, tokens, need_weights=True)
    assert logits.shape == (B, 5)
    assert {kind: [tuple(w.shape) for w in each] for kind, each in weights.items()} == {
        "encoder self": [(B, 3, N, N)] * 2,
        "decoder self": [(B, 3, 4, 4)],
        "cross": [(B, 3, 4, N)],
    }


def test_rows_of_weights_sum_to_one_and_cost_nothing_unasked(images):
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    for model, inputs in ((make(ViT), (images,)), (captioner(), (images, tokens)), (reader(), (images, tokens))):
        logits, weights = model(*inputs, need_weights=True)
        for kind in weights.values():
            for each in kind:
                torch.testing.assert_close(each.sum(-1), torch.ones(each.shape[:-1]))
        unasked, nothing = model(*inputs)
        assert nothing is None
        torch.testing.assert_close(unasked, logits)


def test_the_layers_are_in_the_places_of_their_weights(images):
    for model, inputs in (
        (make(ViT, num_layers=3), (images,)),
        (captioner(), (images, torch.ones(B, 3, dtype=torch.long))),
        (reader(), (images, torch.ones(B, 3, dtype=torch.long))),
    ):
        seen = []
        layers = model.attention_layers()
        handles = [
            layer.register_forward_hook(lambda _, __, result, at=(kind, i), seen=seen: seen.append((at, result[1])))
            for kind, each in layers.items()
            for i, layer in enumerate(each)
        ]
        _, weights = model(*inputs, need_weights=True)
        assert {kind: len(each) for kind, each in weights.items()} == {k: len(each) for k, each in layers.items()}
        assert len(seen) == len(handles)
        assert all(weights[kind][i] is found for (kind, i), found in seen)


def rearranged(images, order):
    """The images with their patches in another order."""
    rows = patches(images, SIZE)[:, order].view(B, HEIGHT // SIZE, WIDTH // SIZE, SIZE, SIZE)
    return rows.transpose(2, 3).reshape(B, HEIGHT, WIDTH)


def test_patches_in_another_order_with_their_positions_change_nothing(images):
    model = make(ViT, num_layers=2)
    expected, _ = model(images)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(2))
    mixed = rearranged(images, order)
    assert not torch.allclose(model(mixed)[0], expected, atol=1e-4)
    with torch.no_grad():
        model.patches.positions.table.copy_(model.patches.positions.table[order])
    torch.testing.assert_close(model(mixed)[0], expected)


def test_the_class_token_is_token_0(images):
    model = make(ViT)
    inputs = []
    model.encoder.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    model(images)
    assert inputs[0].shape[1] == N + 1
    torch.testing.assert_close(inputs[0][:, 0], model.class_token[0].expand(B, -1))
    torch.testing.assert_close(inputs[0][:, 1:], model.patches(images))


def test_no_token_of_a_caption_sees_a_later_one(images):
    model = captioner()
    first, second = torch.tensor([[1, 2, 3, 4]] * B), torch.tensor([[1, 2, 9, 8]] * B)
    torch.testing.assert_close(model(images, first)[0][:, :2], model(images, second)[0][:, :2])
    assert not torch.allclose(model(images, first)[0][:, 2:], model(images, second)[0][:, 2:])


def test_decoding_with_a_cache_is_the_same_to_1e_6(images):
    model = captioner().double()
    images = images.double()
    memory, _ = model.encode(images)
    tokens = torch.randint(1, 13, (B, 7), generator=torch.Generator().manual_seed(3))
    whole, _ = model.decode(tokens, memory)
    caches = model.new_caches()
    steps = [model.decode(tokens[:, t : t + 1], memory, caches=caches)[0] for t in range(7)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-6, rtol=0)
    written = [decoding.greedy(model, images, begin=1, end=2, max_tokens=6, use_cache=use) for use in (True, False)]
    assert torch.equal(*written)


def test_a_reader_s_answer_does_not_depend_on_padding(images):
    model = reader()
    lens = torch.tensor([3, 5])
    questions = torch.randint(1, 17, (B, 5), generator=torch.Generator().manual_seed(4))
    other = questions.clone()
    other[0, 3:] = 0
    expected, weights = model(images, questions, lens, need_weights=True)
    torch.testing.assert_close(model(images, other, lens)[0], expected)
    alone, _ = model(images[:1], questions[:1, :3])
    torch.testing.assert_close(alone, expected[:1])
    assert (weights["decoder self"][0][0, :, :, 3:] == 0).all()
    assert not torch.allclose(model(images, other)[0][0], model(images, questions)[0][0])  # without the lengths it does


def test_a_reader_s_words_see_each_other_in_both_directions(images):
    _, weights = reader()(images, torch.tensor([[1, 2, 3]] * B), need_weights=True)
    assert (weights["decoder self"][0] > 0).all()


def test_models_refuse_pictures_of_another_size(images):
    tokens = torch.ones(B, 3, dtype=torch.long)
    for model, rest in ((make(ViT), ()), (captioner(), (tokens,)), (reader(), (tokens,))):
        with pytest.raises(ValueError, match=r"images are \(10, 6\), but the model was made for \(6, 10\)"):
            model(images.mT, *rest)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"patch_size": 4}, ValueError, "patch_size=4 does not divide height=6 and width=10"),
        ({"width": 0}, ValueError, "width=0 must be at least 1"),
        ({"height": 6.0}, TypeError, "height must be an integer"),
        ({"num_classes": 0}, ValueError, "num_classes=0 must be at least 1"),
        ({"num_heads": 4}, ValueError, "num_hiddens=21 is not divisible by num_heads=4"),
        ({"norm": "nowhere"}, ValueError, "norm='nowhere' must be one of"),
    ],
)
def test_a_model_names_a_bad_setting(settings, error, message):
    with pytest.raises(error, match=message):
        make(ViT, **settings)


def test_settings_make_the_same_model_again(images):
    tokens = torch.ones(B, 3, dtype=torch.long)
    for model, inputs in ((make(ViT), (images,)), (captioner(), (images, tokens)), (reader(), (images, tokens))):
        twin = type(model)(**model.settings).eval()
        twin.load_state_dict(model.state_dict())
        assert torch.equal(twin(*inputs)[0], model(*inputs)[0])


def test_one_colour_with_an_axis_is_one_without(images):
    flat, with_axis = make(ViT), make(ViT, channels=1)
    assert torch.equal(with_axis(images[:, None])[0], flat(images)[0])


def test_a_vit_with_all_its_options_is_put_together_as_written():
    options = {"channels": 3, "patch_bias": False, "readout_bias": False, "norm_tokens": True, "distilled": True}
    model = make(ViT, num_classes=4, num_layers=2, **options).requires_grad_(False)
    images = torch.rand(B, 3, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))
    model.norm.weight.copy_(torch.rand(21))
    seen = patches(images, SIZE) @ model.patches.embedding.weight.T + model.patches.positions.table
    x = model.norm(torch.cat([model.class_token.expand(B, 2, 21), seen], 1))
    for layer in model.encoder.layers:
        x = layer(x)[0]
    x = model.encoder.norm(x)
    expected = (x[:, 0] @ model.readout.weight.T + x[:, 1] @ model.second_readout.weight.T) / 2
    logits, weights = model(images, need_weights=True)
    torch.testing.assert_close(logits, expected)
    assert weights["encoder self"][0].shape == (B, 3, N + 2, N + 2) == (B, 3, model.num_tokens, model.num_tokens)
    assert {name for name, _ in model.named_parameters()} & {"patches.embedding.bias", "readout.bias"} == set()
    bare = make(ViT, num_layers=2, **{**options, "num_classes": None})
    bare.load_state_dict({name: one for name, one in model.state_dict().items() if "readout" not in name})
    torch.testing.assert_close(bare(images)[0], x)


def test_texts_behind_their_end_do_not_matter_to_clip():
    torch.manual_seed(1)
    tokens, lens = torch.tensor([[3, 6, 1, 6], [2, 4, 0, 6], [6, 1, 2, 3]]), torch.tensor([2, 4, 1])
    for end_token in (6, None):
        model = CLIP(7, 5, 12, 3, 2, 8, end_token=end_token, max_tokens=4).eval()
        found, weights = model.read_texts(tokens, lens, need_weights=True)
        short = [model.read_texts(tokens[i : i + 1, :n])[0] for i, n in enumerate(lens)]
        torch.testing.assert_close(found, torch.cat(short))
        torch.testing.assert_close(model.read_texts(tokens)[0], found)  # what stands behind is never seen
        assert (weights["decoder self"][0][2, :, :, 1:] == 0).all()


def test_clip_says_how_well_each_picture_fits_each_text():
    torch.manual_seed(1)
    model = CLIP(7, 5, 12, 3, 2, 8, pictures={"norm_tokens": True, "dropout": 0.0}, max_tokens=4)
    images, tokens = torch.rand(2, 3, 8, 8), torch.randint(7, (3, 4))
    seen, read = model.read_pictures(images)[0], model.read_texts(tokens)[0]
    cosines = torch.stack([torch.cosine_similarity(one, read) for one in seen])
    torch.testing.assert_close(model(images, tokens)[0], cosines / 0.07)
    loss = torch.nn.functional.cross_entropy(model(images, tokens)[0], torch.tensor([0, 2]))
    loss.backward()
    assert all(one.grad is not None and one.grad.abs().max() > 0 for one in model.parameters())


def test_both_towers_of_clip_are_recomposed():
    torch.manual_seed(1)
    model = CLIP(7, 5, 12, 4, 1, 8, pictures={"num_heads": 2, "dropout": 0.0}, max_tokens=4).eval()
    grouped = recomposed(model, {"name": "multi-head", "num_kv_heads": 2}, lambda layer: group_heads(layer, 2))
    again = CLIP(**grouped.settings)
    for one in (grouped, again):
        layers = [layer for of_kind in one.attention_layers().values() for layer in of_kind]
        assert [(layer.num_heads, layer.num_kv_heads) for layer in layers] == [(2, 2), (2, 2), (4, 2)]
    images, tokens = torch.rand(2, 3, 8, 8), torch.randint(7, (3, 4))
    torch.testing.assert_close(grouped.read_pictures(images)[0], model.read_pictures(images)[0])  # 2 heads as before
    assert not torch.allclose(grouped.read_texts(tokens)[0], model.read_texts(tokens)[0])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ViT(channels=0), ValueError, "channels=0 must be at least 1"),
        (lambda: ViT(patch_bias=1), TypeError, "patch_bias must be True or False, got int: 1"),
        (lambda: ViT(distilled="yes"), TypeError, "distilled must be True or False, got str: 'yes'"),
        (
            lambda: ViT(channels=3)(torch.rand(2, 4, 8, 8)),
            ValueError,
            r"\(4, 8, 8\), but the model was made for \(3, 8",
        ),
        (lambda: ViT(channels=3)(torch.rand(2, 8, 8)), ValueError, "images must have 4 axes"),
        (lambda: ViT(channels=3)(torch.zeros(2, 3, 8, 8).byte()), TypeError, "images is torch.uint8, but the model's"),
        (lambda: CLIP(7, pictures=3), TypeError, "pictures must be"),
        (lambda: CLIP(7, pictures={"num_classes": 3}), TypeError, "pictures must not say 'num_classes'"),
        (lambda: CLIP(7, end_token=7), ValueError, "end_token=7 must be below vocab_size=7"),
        (lambda: CLIP(7, end_token=6).read_texts(torch.zeros(2, 3).long()), ValueError, "a text without end_token=6"),
    ],
)
def test_what_pictures_of_colours_refuse_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
