// Reads the normalizer, pre-tokenizer and decoder of a tokenizer.json.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/split.h"

namespace weft::tokenizer {

// Each function takes the value of its key; null means no steps. Nesting of sequences is limited.
Result<NormalizeSteps> ReadNormalizer(const nlohmann::json& value);

struct JsonSplit {
    SplitSteps steps;
    bool bytes = false;  // there is a ByteLevel step: the model's tokens are spelled bytes
};
// `spell`: the output of a final ByteLevel step is spelled; else it stays raw bytes.
Result<JsonSplit> ReadPreTokenizer(const nlohmann::json& value, bool spell);

struct JsonDecoder {
    PieceRule pieces;
    bool strips_space = false;  // decoding removes one leading space
};
Result<JsonDecoder> ReadDecoder(const nlohmann::json& value);

}  // namespace weft::tokenizer
