// A tokenizer as the `tokenizer.ggml.*` metadata of a GGUF file (read_tokenizer.h reads it).
#pragma once

#include "model_files/gguf_writer.h"
#include "tokenizer/kept_json.h"
#include "tokenizer/tokenizer.h"

namespace weft::model_files {

// Everything but what GGUF has no key for; tokenizer/for_gguf.h finds the data of a folder.
void WriteTokenizer(const tokenizer::TokenizerData& data, GgufWriter& writer);

// A tokenizer.json as it is. Other programs are told that there is no tokenizer ("none") rather
// than one that gives other tokens.
void WriteKeptTokenizer(const tokenizer::KeptJson& kept, const tokenizer::TokenizerData& ids,
                        GgufWriter& writer);

}  // namespace weft::model_files
