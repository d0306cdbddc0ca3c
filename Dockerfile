# The built book, and a lab with its notebooks, in one image:
#
#   docker build -t attention .                              torch's CPU build
#   docker build -t attention --build-arg TORCH_INDEX= .     torch's CUDA build, as the package index has it
#   docker run --rm -p 8000:8000 -p 8888:8888 attention      add --gpus all for the second
#
# The book is then at http://localhost:8000, and the log prints the lab's address at port 8888, with its token.
# Python 3.12.15, by what it holds: a name can be given to another image. Dependabot writes newer ones here.
FROM python:3.12-slim-bookworm@sha256:34386ef0cb081344d7ec1c103ba398e6e9f64e9ab3a1509accc92a4e24a07258 AS pages
# hadolint ignore=DL3008
RUN apt-get update -q && apt-get install -y -q --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /book
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu PIP_NO_CACHE_DIR=1
# The environment first: it stays as it is while only pages change. It takes the package's files for -e .
COPY requirements.txt requirements.lock pyproject.toml setup.py README.md LICENSE CITATION.cff Makefile ./
COPY mhalib mhalib
COPY mhalib_classroom mhalib_classroom
RUN CI=true make .venv/.installed
COPY . .
RUN touch .venv/.installed && make book

FROM python:3.12-slim-bookworm@sha256:34386ef0cb081344d7ec1c103ba398e6e9f64e9ab3a1509accc92a4e24a07258
# torch.compile calls the compiler.
# hadolint ignore=DL3008
RUN apt-get update -q && apt-get install -y -q --no-install-recommends g++ && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 reader
WORKDIR /book
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY . .
RUN PIP_EXTRA_INDEX_URL="${TORCH_INDEX}" .binder/postBuild ipykernel jupyterlab && chown -R 1000 chapters exercises
COPY --from=pages /book/_build/html _build/html
USER 1000
EXPOSE 8000 8888
HEALTHCHECK CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://localhost:8000/index.html', timeout=5)"]
CMD ["bash", "-c", "python -m http.server 8000 --directory _build/html & exec jupyter lab --no-browser --ip 0.0.0.0 --port 8888 ."]
