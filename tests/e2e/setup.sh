# setup.sh -- `make` where something to build with is missing: one sentence that says what to run, no trace of CMake
set -u
. "$TANDEM_SOURCE/tests/e2e/lib.sh"
command -v make >/dev/null || { echo "make is missing"; exit 77; }

mkdir -p clone/src tools
cp -r "$TANDEM_SOURCE/Makefile" "$TANDEM_SOURCE/CMakeLists.txt" "$TANDEM_SOURCE/cmake" "$TANDEM_SOURCE/scripts" clone
for tool in sh make cat dirname mkdir find awk tr sed head tail nproc ln uname env; do
    ln -s "$(command -v $tool)" tools/$tool
done

# build WORDS... -- `make` in the clone under `env WORDS`
build() {
    last="env $* make"
    code=0
    (cd clone && env -u MAKEFLAGS -u MAKELEVEL -u DNNLROOT "$@" make) >out 2>err </dev/null || code=$?
    cat out err >both
    [ $code != 0 ] || complain "exit code 0"
    says "^setup: .*'make setup' .*$missing"
    [ "$(grep -cv '^make' both)" = 1 ] || complain "more than one sentence: $(cat both)"
}

missing='cmake ninja-build .*oneDNN$'
for dir in /usr/local/include /usr/include /usr/include/*-linux-gnu; do # a system that has its own, as Debian 13
    [ ! -e "$dir/oneapi/dnnl/dnnl_version.h" ] || missing='cmake ninja-build'
done
build PATH="$PWD/tools"
missing='libjpeg62-turbo-dev .*libmicrohttpd-dev'
build PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH=
[ ! -e clone/build/setup.log ] || complain "make installs by itself"

# a wheel of cuDNN with another checksum: nothing is unpacked, nothing is downloaded
wheel=nvidia_cudnn_cu13-9.28.1.4-py3-none-manylinux_2_27_x86_64.whl
mkdir -p clone/build/deps/download
echo 'no wheel' >clone/build/deps/download/$wheel
last='fetch_cuda.cmake'
(cd clone && cmake -DDEST=build/deps -P cmake/fetch_cuda.cmake) >out 2>err </dev/null && complain "exit code 0"
says checksum
says a54f205b1db1f2895d99f398754db1369816f0569dd459731f925635cf7b65ec
[ ! -e clone/build/deps/cuda/lib/libcudnn.so.9 ] || complain "it is unpacked"
# and one of cuBLAS, which is fetched only where the CUDA toolkit has none
echo 'no wheel' >clone/build/deps/download/nvidia_cublas-13.1.0.3-py3-none-manylinux_2_27_x86_64.whl
(cd clone && cmake -DDEST=build/deps '-DNAMES=cublas' -P cmake/fetch_cuda.cmake) >out 2>err </dev/null && complain "exit code 0"
says checksum
says ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
rm -r clone/build/deps

# nothing is missing, and yet it fails: CMake says why
if (cd "$TANDEM_SOURCE" && scripts/setup --check) >/dev/null 2>&1; then
    cp -r clone broken && rm -rf broken/build
    [ ! -d "$TANDEM_SOURCE/build/deps" ] || { mkdir -p broken/build && ln -s "$TANDEM_SOURCE/build/deps" broken/build/deps; }
    printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(broken C)' 'message(FATAL_ERROR "the reason")' >broken/CMakeLists.txt
    (cd broken && env -u MAKEFLAGS -u MAKELEVEL make) >out 2>err </dev/null && complain "exit code 0"
    cat err >>out
    prints 'the reason'
fi
finish
