#!/bin/sh
# The diff that the README shows is that of the two examples.
set -eu
cd "$1"
shown=$(sed -n '/^```diff$/,/^```$/p' README.md | sed '1d;$d')
real=$(diff -U1 examples/plain_libtorch.cpp examples/readme_loop.cpp | tail -n +3 | grep -v '^@@')
[ -n "$shown" ] && [ "$shown" = "$real" ] || {
  echo "README.md shows another diff than: diff -U1 examples/plain_libtorch.cpp examples/readme_loop.cpp"
  echo "$real"
  exit 1
}
