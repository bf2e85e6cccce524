# carbontui without root. The container needs the GPUs (docker run --gpus all) and a volume for the state:
#   docker build -t carbontui . && docker run --gpus all -v carbontui:/state -it carbontui demo
# Not built by this project's CI; what its two pip lines do is (a wheel in a bare environment).
FROM python:3.12-slim AS build
COPY . /src
RUN pip wheel --no-cache-dir --no-deps -w /wheels /src

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && useradd --uid 1000 --create-home carbontui && install -d -o carbontui /state
USER carbontui
ENV CARBONTUI_HOME=/state TERM=xterm-256color
ENTRYPOINT ["carbontui"]
