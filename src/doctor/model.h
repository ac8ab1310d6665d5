// Compares the files of a model (model_files/content.h) on this machine and other hosts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "doctor/collect.h"
#include "doctor/finding.h"

namespace weft::doctor {

inline constexpr char kModelCheck[] = "model-files";

// Hashes the files of the model `word` and returns one line of JSON per file: the output of `weft
// doctor --model-content`. Reads all bytes, even if the cache has their hashes. progress: receives
// the finished share, 0 to 1, on any thread; may be null. Errors: those of model_files::OpenModel
// and ReadContent.
Result<std::string> ModelContentText(const std::string& word,
                                     const std::function<void(double done)>& progress = nullptr);

// Hashes the model's files here and, at the same time, over ssh on `hosts`. With hosts, a model
// that this machine lacks is a note. `host` names the findings.
// Errors: kUsage (not a host name).
Result<std::vector<Finding>> CheckModel(const std::string& word, const std::string& host,
                                        const std::vector<std::string>& hosts,
                                        const CollectOptions& options,
                                        const std::function<void(double done)>& progress = nullptr);

}  // namespace weft::doctor
