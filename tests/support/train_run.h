// Helpers for tests of `weft train`: training data, the lines of --json, and loss curves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/run_weft.h"

namespace weft::support {

// `count` questions with contexts and answers, of seven kinds; numbered: all different.
inline void WriteQuestions(const std::string& path, int count, bool numbered = false) {
    std::ofstream data(path);
    for (int i = 0; i < count; ++i) {
        const std::string letter(1, static_cast<char>('a' + i % 7));
        data << nlohmann::json{{"question",
                                "which " + letter + (numbered ? std::to_string(i) : "")},
                               {"context", "it is " + letter + letter},
                               {"answer", letter + " and " + letter}}
             << "\n";
    }
}

// A `weft train` command line; adds --no-output if it names no folder.
inline Words Training(Words words) {
    const auto has = [&](const char* word) {
        return std::ranges::find(words, word) != words.end();
    };
    if (!has("--output-dir") && !has("--no-output")) words.emplace_back("--no-output");
    return words;
}
inline Ran RunTrain(const Words& words, const Words& environment = {}) {
    return RunWeft(Training(words), environment);
}

// The lines that are JSON objects.
inline std::vector<nlohmann::json> JsonLines(const std::string& text) {
    std::vector<nlohmann::json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
        if (parsed.is_object()) lines.push_back(std::move(parsed));
    }
    return lines;
}

// The JSON lines of a successful run, which prints nothing else.
inline std::vector<nlohmann::json> LinesOf(const Ran& ran) {
    EXPECT_EQ(ran.status, 0) << ran.err;
    std::vector<nlohmann::json> lines = JsonLines(ran.out);
    EXPECT_EQ(std::ssize(lines), std::ranges::count(ran.out, '\n')) << ran.out;
    return lines;
}

// Compares lines of two runs except the last: equal tokens, and nearly equal numbers.
inline void ExpectAlike(const std::vector<nlohmann::json>& one,
                        const std::vector<nlohmann::json>& other, double tolerance) {
    ASSERT_EQ(other.size(), one.size());
    for (size_t step = 0; step + 1 < one.size(); ++step) {
        for (const char* field : {"loss", "grad_norm", "eval_loss", "aux_loss"}) {
            if (!one[step].contains(field)) continue;
            const double expected = one[step].at(field), got = other[step].at(field);
            EXPECT_TRUE(std::abs(got / expected - 1) <= tolerance)
                << field << " of step " << step << ": " << got << " not " << expected;
        }
        EXPECT_EQ(one[step].at("tokens"), other[step].at("tokens"));
    }
}

// Numbers of each update of a successful run: loss, gradient norm, and load-balance loss if
// present.
inline std::vector<double> CurveOf(const Ran& ran) {
    std::vector<double> numbers;
    for (const nlohmann::json& line : LinesOf(ran)) {
        if (!line.contains("loss")) continue;
        for (const char* field : {"loss", "grad_norm", "aux_loss"}) {
            if (line.contains(field)) numbers.push_back(line.at(field));
        }
    }
    return numbers;
}

inline void ExpectNear(const std::vector<double>& got, const std::vector<double>& expected,
                       double tolerance) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(std::abs(got[i] / expected[i] - 1) <= tolerance)
            << "number " << i << ": " << got[i] << ", expected " << expected[i];
    }
}

}  // namespace weft::support
