// What a training run will see of a data set: how many samples, how long, how much of them is
// learnt, how well they pack, what is wrong with the rest; and a few samples with their masks.
//
// Both parts are read once, each sample at most once, up to `most_samples` of each.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"
#include "train/data/loader.h"

namespace weft::train {

struct InspectOptions {
    LoaderOptions loader = {};  // sequence, pack, longs, skip_bad, seed; the rest is not looked at
    uint64_t most_samples = 1'000'000;
    int show = 2;              // samples printed with their masks
    size_t show_tokens = 512;  // of each, at most
};

struct LengthBin {
    uint64_t least = 0, most = 0;  // tokens
    uint64_t count = 0;
};

struct MaskRun {
    bool loss = false;
    uint64_t tokens = 0;
    uint64_t control = 0;  // control tokens among them
    std::string text{};    // control tokens by their names, in brackets
};

struct ShownSample {
    uint64_t index = 0, tokens = 0;
    std::vector<MaskRun> runs;  // of the first show_tokens
};

struct PartReport {
    uint64_t samples = 0;  // in the part
    uint64_t read = 0;     // looked at
    uint64_t usable = 0;
    uint64_t tokens = 0, loss_tokens = 0;  // of usable ones
    uint64_t shortest = 0, longest = 0, median = 0;
    uint64_t over_long = 0;  // more than sequence + 1 tokens
    uint64_t no_loss = 0;    // of those that are not skipped: nothing (left) to learn
    uint64_t bad = 0;
    std::vector<std::string> errors;  // the first five
    std::vector<LengthBin> bins;      // powers of two
};

struct DataReport {
    std::string name, note;  // note: what DataSet::TakeNote gives, one line each
    int64_t sequence = 0;
    bool pack = true;
    PartReport train, test;
    // Of one epoch of the training part, where all of it was looked at.
    uint64_t sequences = 0;
    double filled = 0;  // the share of positions that are no padding
    std::vector<ShownSample> shown;
};

// Errors: those of reading; of bad records only where skip_bad is not set.
// tokenizer: for the texts of shown samples; null: ids.
Result<DataReport> InspectData(const DataSet& data, const tokenizer::Tokenizer* tokenizer,
                               const InspectOptions& options);

std::string ReportText(const DataReport& report);
nlohmann::ordered_json ReportJson(const DataReport& report);

}  // namespace weft::train
