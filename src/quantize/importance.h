// Importance matrices: for each column of a tensor, the mean square of the activations by which the
// column is multiplied. llama.cpp's llama-imatrix collects these numbers by running the model over
// a text.
//
// Two formats are read: GGUF with tensors NAME.in_sum2 and NAME.counts, and the old binary format
// (the number of entries, then each entry's name, number of calls and sums). The input is hostile.
// Errors: kCorrupt (the message names file and entry).
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
    // Finds the values for the tensor with this GGUF name. The values are positive, one per column
    // or one per column of each expert. nullptr: the importance matrix has none for this tensor.
    const std::vector<float>* Find(const std::string& tensor) const;

  private:
    explicit Importance(std::string path) : path_(std::move(path)) {}
    Status ReadGguf();
    Status ReadOld(std::string_view bytes);
    // counts: counts[i] belongs to the i-th of counts.size() equal parts of `sums`.
    Status Add(std::string name, std::vector<float> sums, const std::vector<float>& counts);

    std::string path_;
    std::unordered_map<std::string, std::vector<float>> entries_;
};

}  // namespace weft::quantize
