// The metadata and tensors of GGUF files that Ollama's converter wrote, with the names and values
// that llama.cpp's converter writes for the same models.
//
// Source: Ollama's convert/convert_gemma3.go, convert_mistral.go and convert_gemma4.go; Ollama's
// engine has the values that these files omit as constants.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model_files/metadata.h"

namespace weft::model_files {

// Renames entries that have only Ollama's name, and adds omitted ones. Entries that have
// llama.cpp's names are unchanged. New keys and values are constants of the program.
void TranslateOllamaKeys(std::vector<MetaEntry>& entries);

// The usual name of a tensor; `name` itself unless only Ollama's converter writes it.
std::string TranslateOllamaTensor(std::string_view name);

}  // namespace weft::model_files
