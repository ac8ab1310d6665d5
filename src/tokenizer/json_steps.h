// The normalizer, pre-tokenizer and decoder of a tokenizer.json.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/split.h"

namespace weft::tokenizer {

// Each takes the value of its key; null is nothing to do. Nested sequences have a limit.
Result<NormalizeSteps> ReadNormalizer(const nlohmann::json& value);

struct JsonSplit {
    SplitSteps steps;
    bool bytes = false;  // there is a ByteLevel: the model's tokens spell bytes
};
// `spell`: what comes out of a ByteLevel at the end is spelled (else, bytes as they are).
Result<JsonSplit> ReadPreTokenizer(const nlohmann::json& value, bool spell);

struct JsonDecoder {
    PieceRule pieces;
    bool strips_space = false;  // one space comes off the front of a text
};
Result<JsonDecoder> ReadDecoder(const nlohmann::json& value);

}  // namespace weft::tokenizer
