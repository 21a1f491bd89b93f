# The cross-building tools in one folder, $PREFIX: how each part gets there.
#
# Sourced by ops/cross. Everything is unpacked from Debian packages; nothing is
# installed system-wide and root is not needed. Each part is complete once its
# `ready` file (for the toolchain: `made-for`) exists, which is written last, so
# an interrupted set-up is simply done again. The caller holds $PREFIX/lock.
#
#   toolchain   a copy of the active Rust toolchain, to which the standard
#               library of other targets is added. Rust's own source for that
#               comes from Debian's `rust-src` of the very same release
#   mingw       the mingw-w64 C compiler and linker
#   wine        Wine, to run Windows programs without a display
#   stub        a C compiler and archiver that write empty files, for targets
#               that are only type-checked
#
# Settings: see `ops/cross --help`.

# Suites searched for rust-src besides the configured ones, and the one that
# Wine is taken from (the system's own suite where that one has none).
RUST_SUITES=${AGENT_BRIDGE_CROSS_SUITES-trixie-backports trixie forky sid}
WINE_SUITE=${AGENT_BRIDGE_CROSS_WINE-trixie}

# --- packages ---------------------------------------------------------------

# A private apt below $PREFIX: the system's configured sources, and further
# suites of the same archive. The system's own apt is neither used nor changed.
private_apt() {
    local apt=$PREFIX/apt list parts file archive suite
    [ ! -e "$apt/ready" ] || return 0
    say 'reading package lists'
    rm -rf "$apt"
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/sources"
    : > "$apt/state/status"
    # apt-config prints assignments: where the system keeps its sources.
    eval "$(apt-config shell list Dir::Etc::sourcelist/f parts Dir::Etc::sourceparts/d)"
    [ ! -f "$list" ] || cp "$list" "$apt/sources/configured.list"
    for file in "$parts"*.list "$parts"*.sources; do
        [ ! -f "$file" ] || cp "$file" "$apt/sources/"
    done
    cat > "$apt/apt.conf" <<CONF
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$apt/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
CONF
    # Package lists only, without the data of software centres.
    apt-config dump | sed -n 's/^\(Acquire::IndexTargets::deb::DEP-11[^: ]*\)::MetaKey.*/\1::DefaultEnabled "false";/p' \
        >> "$apt/apt.conf"
    update_lists
    archive=$(with_apt apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        awk -v suite="$OWN_SUITE" '$1 == suite { print $2; exit }')
    [ -n "$archive" ] || die "apt has no source for this system's own suite ($OWN_SUITE); is it Debian?"
    for suite in $RUST_SUITES $WINE_SUITE; do
        [ "$suite" = "$OWN_SUITE" ] || printf 'deb %s %s main\n' "$archive" "$suite"
    done | sort -u > "$apt/sources/further.list"
    update_lists
    touch "$apt/ready"
}

with_apt() { APT_CONFIG=$PREFIX/apt/apt.conf "$@"; }

# A suite that no longer exists only loses the packages that it alone had.
update_lists() {
    local log=$PREFIX/apt/log
    with_apt apt-get -q update > "$log" 2>&1 ||
        warn "$(grep -m1 '^E:' "$log" || echo 'apt-get update failed')"
}

# suite_has PACKAGE SUITE
suite_has() {
    with_apt apt-cache madison "$1" | awk -F'|' -v suite="$2" '
        { split($3, field, " "); sub(/\/.*/, "", field[2]); if (field[2] == suite) found = 1 }
        END { exit !found }'
}

# own_version PACKAGE: the newest in the system's own suite and its updates.
own_version() {
    with_apt apt-cache madison "$1" | awk -F'|' -v suite="$OWN_SUITE" '
        { split($3, field, " "); sub(/\/.*/, "", field[2]) }
        field[2] == suite || index(field[2], suite "-") == 1 { gsub(/ /, "", $2); print $2; exit }'
}

# dependency PACKAGE=VERSION START: the first of its dependencies so named.
dependency() {
    with_apt apt-cache show "$1" | sed -n 's/^Depends: //p' | tr ',' '\n' |
        awk -v start="$2" 'index($1, start) == 1 { print $1; exit }'
}

# unpack FOLDER PACKAGE...: downloads packages (NAME/SUITE or NAME=VERSION) and
# unpacks them below FOLDER.
unpack() {
    local folder=$1 debs file
    shift
    private_apt
    debs=$(mktemp -d "$PREFIX/debs.XXXXXX")
    if ! (cd "$debs" && with_apt apt-get -q download "$@" > log 2>&1); then
        cat "$debs/log" >&2
        # Perhaps the lists are old: read them anew the next time.
        rm -rf "$debs" "$PREFIX/apt/ready"
        die "cannot download: $*"
    fi
    mkdir -p "$folder"
    for file in "$debs"/*.deb; do dpkg-deb -x "$file" "$folder"; done
    rm -rf "$debs"
}

patchelf() {
    [ -x "$PREFIX/patchelf/usr/bin/patchelf" ] || unpack "$PREFIX/patchelf" "patchelf/$OWN_SUITE"
    "$PREFIX/patchelf/usr/bin/patchelf" "$@"
}

# --- Rust -------------------------------------------------------------------

# The copy of the toolchain that this repository uses, and Rust's source.
need_toolchain() {
    local sysroot rustc release commit wanted version=given
    local copy=$PREFIX/toolchain source=$PREFIX/rust-src given=${AGENT_BRIDGE_CROSS_RUST_SRC:-}
    sysroot=$(cd "$REPO" && rustc --print sysroot) || die 'no working rustc in PATH'
    [ "$sysroot" != "$copy" ] || return 0       # called with our own exports
    rustc=$sysroot/bin/rustc
    [ -x "$rustc" ] || rustc=rustc
    release=$("$rustc" -vV | sed -n 's/^release: //p')
    commit=$("$rustc" -vV | sed -n 's/^commit-hash: //p')
    wanted="$release $commit $given"
    [ "$(cat "$copy/made-for" 2> /dev/null)" != "$wanted" ] || return 0
    rm -rf "$copy" "$source"
    mkdir -p "$copy" "$source"
    case $given in
    '')
        private_apt
        version=$(with_apt apt-cache madison rust-src | awk -v release="$release" '
            $3 ~ /[-+]/ && (index($3, release "+") == 1 || index($3, release "-") == 1) { print $3; exit }')
        if [ -n "$version" ]; then
            say "unpacking rust-src $version"
            unpack "$source/deb" "rust-src=$version"
        fi
        ;;
    *.deb) dpkg-deb -x "$given" "$source/deb" ;;
    *.tar | *.tar.*) tar -xf "$given" -C "$source" ;;
    *) cp -a "$given/." "$source/" ;;
    esac
    if [ -n "$version" ]; then
        (cd "$sysroot" && cp -a --reflink=auto bin lib "$copy/")
        [ ! -d "$sysroot/libexec" ] || cp -a --reflink=auto "$sysroot/libexec" "$copy/"
    else
        browser_toolchain "$sysroot" "$release"
    fi
    [ -d "$source/library" ] || mv "$source"/deb/usr/src/*/library "$source/library"
    rm -rf "$source/deb"
    # Static libraries only: a shared one would have to be linked, and targets
    # that are merely checked have no linker here.
    sed -i 's/^crate-type = \["dylib", "rlib"\]/crate-type = ["rlib"]/' "$source/library/std/Cargo.toml"
    grep -q '^crate-type = \["rlib"\]' "$source/library/std/Cargo.toml" ||
        die "the manifest of Rust's std has changed: adapt need_toolchain in ops/lib/prefix.sh"
    printf '%s\n' "$wanted" > "$copy/made-for"
}

# Old versions of rust-src may vanish from the archive. Then the compiler that
# Debian keeps for its browsers, with its own source, stands in.
browser_toolchain() {
    local sysroot=$1 version std llvm program copy=$PREFIX/toolchain
    warn "no suite has rust-src $2: using Debian's rustc-web, which is another release and has no clippy"
    version=$(own_version rustc-web)
    [ -n "$version" ] || die "neither rust-src $2 nor rustc-web can be had; set AGENT_BRIDGE_CROSS_RUST_SRC"
    std=$(dependency "libstd-rust-web-dev=$version" libstd-rust-web-)
    llvm=$(dependency "$std=$version" libllvm)
    [ -n "$std" ] && [ -n "$llvm" ] || die "the dependencies of rustc-web $version are not as expected"
    say "unpacking rustc-web $version"
    unpack "$PREFIX/rust-src/deb" "rustc-web=$version" "libstd-rust-web-dev=$version" \
        "rust-web-src=$version" "$std=$version" "$llvm=$(own_version "$llvm")"
    cp -a "$PREFIX/rust-src/deb/usr/bin" "$PREFIX/rust-src/deb/usr/lib" "$copy/"
    rm -rf "$copy/lib/rustlib/src"
    cp -a "$sysroot/bin/cargo" "$copy/bin/"
    for program in rustc rustdoc; do
        patchelf --force-rpath --set-rpath "$copy/lib/x86_64-linux-gnu" "$copy/bin/$program"
    done
}

# need_std TRIPLE: builds the standard library of TRIPLE into the copy, the way
# a Rust release is built. After that, plain stable cargo works for TRIPLE and
# RUSTC_BOOTSTRAP reaches neither the project nor its dependencies.
need_std() {
    # The Windows library imports DLLs by mingw's dlltool.
    local triple=$1 libs=$PREFIX/toolchain/lib/rustlib/$1/lib build=$PREFIX/std-build
    [ -z "$(ls "$libs"/libstd-*.rlib 2> /dev/null)" ] || return 0
    say "building the standard library for $triple"
    rm -rf "$build" "$libs.new"
    mkdir -p "$build" "$libs.new"
    (
        unset RUSTC RUSTDOC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER RUSTUP_TOOLCHAIN
        unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET CARGO_BUILD_RUSTFLAGS
        cd "$PREFIX/rust-src/library"
        PATH=$PREFIX/toolchain/bin:$PREFIX/mingw/usr/bin:$PATH RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$build \
            CARGO_PROFILE_DIST_DEBUG=line-tables-only \
            RUSTFLAGS="-Zforce-unstable-if-unmarked --remap-path-prefix=$PREFIX/rust-src=/rustc/src" \
            cargo build --locked --profile dist --manifest-path sysroot/Cargo.toml \
            --features panic-unwind,backtrace --target "$triple"
    ) > "$build/log" 2>&1 || { tail -30 "$build/log" >&2; die "the standard library for $triple did not build"; }
    cp "$build/$triple"/dist/deps/*.rlib "$libs.new/"
    rm -f "$libs.new"/libsysroot-*.rlib
    rm -rf "$libs" "$build"
    mv "$libs.new" "$libs"
}

# --- C ----------------------------------------------------------------------

need_mingw() {
    local tool folder=$PREFIX/mingw bin=$PREFIX/mingw/usr/bin
    [ ! -e "$folder/ready" ] || return 0
    say 'unpacking mingw-w64'
    rm -rf "$folder"
    unpack "$folder" "binutils-mingw-w64-x86-64/$OWN_SUITE" "mingw-w64-common/$OWN_SUITE" \
        "mingw-w64-x86-64-dev/$OWN_SUITE" "gcc-mingw-w64-base/$OWN_SUITE" \
        "gcc-mingw-w64-x86-64-posix-runtime/$OWN_SUITE" "gcc-mingw-w64-x86-64-posix/$OWN_SUITE" \
        "g++-mingw-w64-x86-64-posix/$OWN_SUITE"
    # Installing the packages would have made these names.
    for tool in gcc g++ c++ cpp gcc-ar gcc-nm gcc-ranlib; do
        ln -sf "x86_64-w64-mingw32-$tool-posix" "$bin/x86_64-w64-mingw32-$tool"
    done
    mkdir -p "$PREFIX/bin"
    # A program that keeps Wine's services up, see wine_up.
    printf '#include <windows.h>\nint main(void) { Sleep(INFINITE); return 0; }\n' > "$PREFIX/bin/keep.c"
    "$bin/x86_64-w64-mingw32-gcc" -O2 -s -o "$PREFIX/bin/keep.exe" "$PREFIX/bin/keep.c" ||
        die 'the unpacked mingw-w64 gcc does not work here'
    touch "$folder/ready"
}

# Build scripts that compile C run even when the target is only type-checked;
# nothing is linked then, so empty objects do.
need_stubs() {
    mkdir -p "$PREFIX/stub/sdk"
    cat > "$PREFIX/stub/cc.new" <<'STUB'
#!/bin/sh
case " $* " in *" -E "* | *" --version "* | *" -dumpmachine "*) exec cc "$@" ;; esac
out=
while [ $# -gt 0 ]; do
    case $1 in -o) out=$2; shift ;; -o*) out=${1#-o} ;; [-/]Fo*) out=${1#?Fo} ;; esac
    shift
done
[ -z "$out" ] || : > "$out"
STUB
    cat > "$PREFIX/stub/ar.new" <<'STUB'
#!/bin/sh
out=
for arg; do
    case $arg in [-/][oO][uU][tT]:*) out=${arg#?????}; break ;; *.a | *.lib) out=$arg; break ;; esac
done
[ -z "$out" ] || printf '!<arch>\n' > "$out"
STUB
    chmod +x "$PREFIX/stub/cc.new" "$PREFIX/stub/ar.new"
    mv "$PREFIX/stub/cc.new" "$PREFIX/stub/cc"
    mv "$PREFIX/stub/ar.new" "$PREFIX/stub/ar"
}

# --- Wine -------------------------------------------------------------------

# LC_ALL: without UTF-8, names that are not ASCII cannot be made. TMPDIR: Wine
# aborts if it is set ("free(): invalid pointer"); programs get Wine's own TEMP.
write_wine_run() {
    mkdir -p "$PREFIX/bin"
    cat > "$PREFIX/bin/wine-run.new" <<RUN
#!/bin/sh
# Runs a Windows program under the Wine beside this file, without a display.
export WINEPREFIX="$PREFIX/wineprefix" WINEARCH=win64 WINEDEBUG="\${WINEDEBUG:--all}"
export WINEDLLOVERRIDES="\${WINEDLLOVERRIDES:-mscoree,mshtml,winemenubuilder.exe=}"
export LC_ALL=C.UTF-8
unset DISPLAY WAYLAND_DISPLAY TMPDIR
exec "$PREFIX/wine/usr/lib/wine/wine64" "\$@"
RUN
    chmod +x "$PREFIX/bin/wine-run.new"
    mv "$PREFIX/bin/wine-run.new" "$PREFIX/bin/wine-run"
}

need_wine() {
    local folder=$PREFIX/wine root=$PREFIX/wine/usr libs=$PREFIX/wine/usr/lib/x86_64-linux-gnu
    local suite=$WINE_SUITE program zlib dlls=$PREFIX/wine/usr/lib/x86_64-linux-gnu/wine/x86_64-windows
    write_wine_run
    [ ! -e "$folder/ready" ] || return 0
    private_apt
    need_mingw
    suite_has wine64 "$suite" || suite=$OWN_SUITE
    say "unpacking Wine from $suite"
    rm -rf "$folder" "$PREFIX/wineprefix"
    unpack "$folder" "wine64/$suite" "libwine/$suite" "libz-mingw-w64/$suite" \
        "libc6/$suite" "libgcc-s1/$suite" "libunwind8/$suite" "liblzma5/$suite"
    # Debian 12 and older keep libc6 and some others in /lib.
    [ ! -d "$folder/lib/x86_64-linux-gnu" ] || cp -an "$folder/lib/x86_64-linux-gnu/." "$libs/"
    # Wine runs on the C library that it was built for; the system's stays.
    for program in wine64 wineserver64; do
        patchelf --set-interpreter "$libs/ld-linux-x86-64.so.2" --force-rpath --set-rpath "$libs" \
            "$root/lib/wine/$program"
    done
    ln -sf wineserver64 "$root/lib/wine/wineserver"     # in place of a script with a fixed path
    # Beside its programs Wine looks for share/wine/wine, which the package lacks.
    [ -e "$root/share/wine/wine" ] || ln -s . "$root/share/wine/wine"
    # Installing libwine would have marked this DLL as one of Wine's own;
    # without the mark user32 does not load.
    zlib=$root/x86_64-w64-mingw32/lib/zlib1.dll
    { head -c 64 "$zlib"; printf 'Wine builtin DLL'; head -c 16 /dev/zero; tail -c +97 "$zlib"; } > "$dlls/zlib1.dll"
    mkdir -p "$PREFIX/wineprefix"
    say 'making the Wine prefix'
    timeout -k 10 180 "$PREFIX/bin/wine-run" wineboot -i > "$folder/boot.log" 2>&1 < /dev/null ||
        die "wineboot failed, see $folder/boot.log"
    # Wine 8 lacks the DLL from which Rust's std takes random numbers.
    if [ ! -e "$dlls/bcryptprimitives.dll" ]; then
        cat > "$PREFIX/bin/random.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *to, SIZE_T left) {
    while (left) {
        ULONG now = left > 0x40000000u ? 0x40000000u : (ULONG)left;
        if (!SystemFunction036(to, now)) return FALSE;
        to += now; left -= now;
    }
    return TRUE;
}
C
        "$PREFIX/mingw/usr/bin/x86_64-w64-mingw32-gcc" -shared -O2 -s "$PREFIX/bin/random.c" -ladvapi32 \
            -o "$PREFIX/wineprefix/drive_c/windows/system32/bcryptprimitives.dll"
    fi
    wine_down
    touch "$folder/ready"
}

# While one program runs, Wine's services stay up: further starts are quick, and
# no test is the one whose standard output those services inherit.
wine_up() {
    "$PREFIX/bin/wine-run" "$PREFIX/bin/keep.exe" < /dev/null > /dev/null 2>&1 7>&- 9>&- &
    timeout -k 10 120 "$PREFIX/bin/wine-run" cmd /c exit < /dev/null > /dev/null 2>&1 7>&- 9>&- ||
        die 'Wine does not run here'
}

wine_down() {
    WINEPREFIX=$PREFIX/wineprefix timeout -k 5 30 env -u TMPDIR "$PREFIX/wine/usr/lib/wine/wineserver64" -k > /dev/null 2>&1 || :
}
