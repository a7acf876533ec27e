#!/usr/bin/env bash
# Scores and poses of pictures, over REST: predict.sh PICTURE...
# A stereo pair is one picture, the left view in its left half.
#   MODEL_URL   default http://localhost:8501/v1/models/efficient_mnist
set -euo pipefail
url="${MODEL_URL:-http://localhost:8501/v1/models/efficient_mnist}"

instances=""
for picture in "$@"; do
  instances+="${instances:+,}{\"b64\":\"$(base64 < "$picture" | tr -d '\n')\"}"
done
curl --fail-with-body --silent --show-error "$url:predict" \
  --header 'Content-Type: application/json' \
  --data-binary @- <<< "{\"signature_name\":\"predict_bytes\",\"instances\":[$instances]}"
