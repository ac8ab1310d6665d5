// Resolves a MODEL argument, the same for every command: a path, a repository of the Hub, a short
// name (hub/short_names.h), or a name of a model that `weft plan` supports (plan/names.h), each
// with an optional type.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::cli {

// The repository of a word: "hf:Qwen/Qwen3-8B-GGUF:Q4_K_M" for "qwen3-8b:q4_k_m"; "" if it names
// none, such as an existing path, synthetic:..., or an unknown word.
std::string SpecOfModel(const std::string& word);

// Whether the word is a model name of `weft plan`, and neither a path nor a repository.
bool IsPlannedName(const std::string& word);

// Whether a word without a command names a model: its path, a known name, or a repository.
bool LooksLikeModel(const std::string& word);

// Whether the word names a model that Weft can't run, because it lacks the architecture.
bool IsNotRun(const std::string& word);

// As SpecOfModel, but with errors: kNotFound: a known name without a known repository; kUsage: the
// word names nothing.
Result<std::string> NeedSpec(const std::string& word);

// Replaces a MODEL word by hf:... if it is in the cache. pull: fetches it first if it is missing.
// Errors: kUsage: --pull with a word without a repository; kNotFound: a known name whose repository
// is not in the cache, or is unknown.
Status FindModel(std::string& model, bool pull);
// pull: downloads the data sets of the Hub among the words of --data that the cache lacks; becomes
// false if there are such words, and `model` is a path, which FindModel would not pull.
Status FindData(const std::vector<std::string>& words, const std::string& model, bool& pull);
// Does the same as FindModel for a draft model. `word` may be empty, or a path even with --pull.
Status FindDraft(std::string& model, bool pull);

// `word` with the type that `weft run` would choose ("qwen3-8b:q4_k_m"), if it names a model or a
// repository of GGUF files without a type. Other words, and models published in a type of their own
// (gpt-oss), stay unchanged.
std::string WithUsualType(const std::string& word);
// `word` with `type` instead of its own.
std::string WithType(const std::string& word, const std::string& type);
// A name of `weft plan` with the equivalent file type: "qwen3-8b:q4_0" for "qwen3:8b:4bit".
std::string RunnableName(const std::string& word);

}  // namespace weft::cli
