# carbontui without root, and an example that trains. The container needs the GPUs and a volume for the state:
#   docker build -t carbontui .
#   docker run --gpus all -v carbontui:/state -it carbontui demo
#   docker run --gpus all -v carbontui:/state -it carbontui run -- python /examples/train_charlm.py
# Without PyTorch (train_numpy.py trains): --build-arg EXTRA=
# Not built by this project's CI; what its pip lines do is (a wheel in a bare environment).
FROM python:3.12-slim AS build
COPY . /src
RUN pip wheel --no-cache-dir --no-deps -w /wheels /src

FROM python:3.12-slim
ARG EXTRA=demo
COPY --from=build /wheels /wheels
COPY examples /examples
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[$EXTRA]" && useradd --uid 1000 --create-home carbontui && \
    install -d -o carbontui /state
USER carbontui
ENV CARBONTUI_HOME=/state TERM=xterm-256color
ENTRYPOINT ["carbontui"]
