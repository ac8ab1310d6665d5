// Reads a golden file in safetensors format without Weft's own reader.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/paths.h"
#include "support/read_bytes.h"

namespace weft::support {

class GoldenFile {
  public:
    explicit GoldenFile(const std::string& path) {
        bytes_ = ReadBytes(path);
        EXPECT_GT(bytes_.size(), 8u) << path;
        if (bytes_.size() <= 8) return;
        uint64_t header_bytes = 0;
        std::memcpy(&header_bytes, bytes_.data(), 8);
        header_ = nlohmann::json::parse(bytes_.substr(8, header_bytes));
        data_begin_ = 8 + header_bytes;
    }

    // A float32 tensor; empty: no such name.
    std::vector<float> Tensor(const std::string& name) const {
        if (!header_.contains(name)) return {};
        const size_t begin = header_[name]["data_offsets"][0];
        const size_t end = header_[name]["data_offsets"][1];
        std::vector<float> data((end - begin) / sizeof(float));
        std::memcpy(data.data(), bytes_.data() + data_begin_ + begin, end - begin);
        return data;
    }

  private:
    std::string bytes_;
    nlohmann::json header_;
    size_t data_begin_ = 0;
};

// The golden file of a tiny model: tests/data/logits/CASE.safetensors, or `shared`, which holds the
// older cases.
inline std::string LogitsPath(const std::string& name, const std::string& shared) {
    const std::string own = TestData("/logits/" + name + ".safetensors");
    return std::filesystem::exists(own) ? own : TestData(shared);
}

}  // namespace weft::support
