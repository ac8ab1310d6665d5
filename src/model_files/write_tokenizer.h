// A tokenizer as the `tokenizer.ggml.*` metadata of a GGUF file (read_tokenizer.h reads it).
#pragma once

#include "model_files/gguf_writer.h"
#include "tokenizer/tokenizer.h"

namespace weft::model_files {

// Everything but what GGUF has no key for; tokenizer/for_gguf.h finds the data of a folder.
void WriteTokenizer(const tokenizer::TokenizerData& data, GgufWriter& writer);

}  // namespace weft::model_files
