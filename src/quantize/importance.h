// Importance matrices: for each column of a tensor, the mean square of the activations that it is
// multiplied by, collected by running the model over a text (llama.cpp's llama-imatrix).
//
// Two formats: GGUF with tensors NAME.in_sum2 and NAME.counts, and the old binary format (a count
// of entries; per entry its name, calls and sums). Input is hostile: kCorrupt names file and entry.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace weft::quantize {

class Importance {
  public:
    static Result<Importance> Read(const std::string& path);

    const std::string& path() const { return path_; }
    size_t size() const { return entries_.size(); }
    // For a tensor's GGUF name: positive values, one per column or per column of each expert.
    // nullptr: the matrix has none.
    const std::vector<float>* Find(const std::string& tensor) const;

  private:
    explicit Importance(std::string path) : path_(std::move(path)) {}
    Status ReadGguf();
    Status ReadOld(std::string_view bytes);
    // counts: one for each sums.size() / counts.size() columns.
    Status Add(std::string name, std::vector<float> sums, const std::vector<float>& counts);

    std::string path_;
    std::unordered_map<std::string, std::vector<float>> entries_;
};

}  // namespace weft::quantize
