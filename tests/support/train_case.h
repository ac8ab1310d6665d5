// Fixture of tests that run `weft train` in a folder of their own: a tiny model with tied
// embeddings and 40 questions.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/read_bytes.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {

class TrainCase : public testing::Test {
  protected:
    explicit TrainCase(model::Hyper hyper = OddHyper()) {
        hyper.tied = true;
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF16});
        WriteQuestions(data_, 40);
    }
    // The last line of each step, and of the end (step 0).
    static std::map<int64_t, nlohmann::json> StepsOf(const std::string& text) {
        std::map<int64_t, nlohmann::json> steps;
        for (const auto& line : JsonLines(text)) steps[line.value("step", int64_t{0})] = line;
        return steps;
    }
    static std::string Slurp(const std::string& path) { return ReadBytes(path); }
    static void Put(const std::string& path, const std::string& text) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    }

    test::TempDir dir_;
    const std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl", out_ = dir_ / "out";
};

}  // namespace weft::support
