# shellcheck shell=bash disable=SC2034
# What the scripts share; sourced, never run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
venv=$root/.venv
jobs=${JOBS:-$(nproc)}
# pip's cmake and ninja: Debian's are too old for a second reader of the presets, and differ from machine to machine.
export PATH="$venv/bin:$PATH"
# One cache for all clones of a machine: what is cached does not depend on where the clone lies.
export CCACHE_BASEDIR=${CCACHE_BASEDIR-$root} CCACHE_NOHASHDIR=1
export PIP_DISABLE_PIP_VERSION_CHECK=1

# say WHAT...: a line for the reader.
say() { printf '\033[1m==> %s\033[0m\n' "$*"; }

# run COMMAND...: prints the command as it would be typed from the repository's root, then runs it.
run() {
  printf '  + %s\n' "$(printf '%q ' "$@" | sed "s#$root/##g")"
  "$@"
}

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# install_packages WHEN...: the system packages of scripts/packages.txt whose second column is one of WHEN.
install_packages() {
  local -a wanted missing
  mapfile -t wanted < <(for when in "$@"; do awk -v when="$when" '!/^#/ && $2 == when { print $1 }' scripts/packages.txt; done)
  if ! command -v dpkg-query >/dev/null; then
    say "No dpkg on this system: make sure that these are installed (Debian's names): ${wanted[*]}"
    return 0
  fi
  mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) \
    <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null | awk '$1 == "installed" { print $2 }' | sort -u))
  [[ ${#missing[@]} != 0 ]] || return 0
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    die "these system packages are missing, and only root can install them. Run:
  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  say "Installing system packages ($*): ${missing[*]}"
  run apt-get update -qq
  DEBIAN_FRONTEND=noninteractive run apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
}

# ours PATTERN...: the files of the repository, and those about to be in it, ended by NUL.
ours() {
  git ls-files -z --cached --others --exclude-standard -- "$@" |
    while IFS= read -r -d '' file; do [[ -f $file ]] && printf '%s\0' "$file"; done
}
