// The meaning of a MODEL argument, the same for every command: a path, a repository of the Hub, a
// short name (hub/short_names.h), or a name that `weft plan` knows (plan/names.h); each with a type
// or without.
#pragma once

#include <string>

#include "base/result.h"

namespace weft::cli {

// The repository of a word, "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M" of "qwen3-8b:q4_k_m"; "": it names none,
// such as a path that is there, synthetic:..., or an unknown word.
std::string SpecOfModel(const std::string& word);

// Whether `weft plan` knows the word as the name of a model, and the word is no path or repository.
bool IsPlannedName(const std::string& word);

// Whether a word without a command names a model: a path of one, a known name, or a repository.
bool LooksLikeModel(const std::string& word);

// Whether it is the name of a model whose architecture Weft lacks.
bool IsNotRun(const std::string& word);

// SpecOfModel. Errors: kNotFound: a known name whose repository is not known; kUsage: no name.
Result<std::string> NeedSpec(const std::string& word);

// A MODEL word becomes hf:... where that is in the cache. pull: fetches it first where it is not.
// Errors: kUsage: --pull of a word without a repository; kNotFound: a known name whose repository
// is not in the cache, or is not known.
Status FindModel(std::string& model, bool pull);
// The same of a draft model, which may be empty, and a path also beside --pull.
Status FindDraft(std::string& model, bool pull);

// `word` with the type that `weft run` of it takes ("qwen3-8b:q4_k_m"), where it names a model, or
// a repository of GGUF files, and no type. Unchanged otherwise, and where the model is published in
// a type of its own (gpt-oss).
std::string WithUsualType(const std::string& word);
// `word` with this type in place of its own.
std::string WithType(const std::string& word, const std::string& type);
// A name of `weft plan` with the file type that it counts as: "qwen3-8b:q4_0" of "qwen3:8b:4bit".
std::string RunnableName(const std::string& word);

}  // namespace weft::cli
