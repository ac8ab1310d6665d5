// Writes a tokenizer as the `tokenizer.ggml.*` metadata of a GGUF file (read_tokenizer.h reads it).
#pragma once

#include "model_files/gguf_writer.h"
#include "tokenizer/kept_json.h"
#include "tokenizer/tokenizer.h"

namespace weft::model_files {

// Writes everything that GGUF has keys for. TokenizerForGguf (tokenizer/for_gguf.h) makes `data`
// from a folder.
void WriteTokenizer(const tokenizer::TokenizerData& data, GgufWriter& writer);

// Stores a tokenizer.json unchanged. `tokenizer.ggml.model` is "none", so that other programs don't
// use a tokenizer that gives other tokens.
void WriteKeptTokenizer(const tokenizer::KeptJson& kept, const tokenizer::TokenizerData& ids,
                        GgufWriter& writer);

}  // namespace weft::model_files
