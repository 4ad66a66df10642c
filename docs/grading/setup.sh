#!/usr/bin/env bash
# Gradescope calls this once, to build the image. The checker's repository lies in /autograder/source/checker.
set -euo pipefail
apt-get update && apt-get install -y python3 python3-venv
python3 -m venv /autograder/venv
/autograder/venv/bin/pip install torch --index-url https://download.pytorch.org/whl/cpu
/autograder/venv/bin/pip install /autograder/source/checker/harness einops
