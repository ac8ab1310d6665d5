// Reads the normalizer, pre-tokenizer and decoder of a tokenizer.json.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/split.h"

namespace weft::tokenizer {

// Each function takes the value of one key of tokenizer.json; null means no steps. Nesting of
// sequences is limited.
Result<NormalizeSteps> ReadNormalizer(const nlohmann::json& value);

struct JsonSplit {
    SplitSteps steps;
    bool bytes = false;  // there is a ByteLevel step: tokens are in GPT-2's spelling
};
// `spell`: a final ByteLevel step outputs GPT-2's spelling (byte_spelling.h); otherwise it outputs
// raw bytes.
Result<JsonSplit> ReadPreTokenizer(const nlohmann::json& value, bool spell);

struct JsonDecoder {
    PieceRule pieces;
    bool strips_space = false;  // decoding removes one leading space
    bool by_model = false;      // WordPiece: the model puts spaces in front of words
};
Result<JsonDecoder> ReadDecoder(const nlohmann::json& value);

}  // namespace weft::tokenizer
