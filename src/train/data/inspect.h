// Reports what a training run will see of a data set: number and lengths of samples, learned
// tokens, packing efficiency, errors, and a few samples with their masks.
//
// Reads each sample of both parts at most once, up to `most_samples` per part.
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
    LoaderOptions loader = {};  // sequence, pack, longs, skip_bad, seed; other fields are ignored
    uint64_t most_samples = 1'000'000;
    int show = 2;              // samples printed with their masks
    size_t show_tokens = 512;  // most tokens shown of each sample
};

struct LengthBin {
    uint64_t least = 0, most = 0;  // tokens
    uint64_t count = 0;
};

struct MaskRun {
    bool loss = false;
    uint64_t tokens = 0;
    uint64_t control = 0;  // control tokens among them
    std::string text{};    // control tokens appear as their names in brackets
};

struct ShownSample {
    uint64_t index = 0, tokens = 0;
    std::vector<MaskRun> runs;  // of the first show_tokens tokens
};

struct PartReport {
    uint64_t samples = 0;  // all samples of the part
    uint64_t read = 0;     // samples that were read
    uint64_t usable = 0;
    uint64_t tokens = 0, loss_tokens = 0;  // of usable samples
    uint64_t shortest = 0, longest = 0, median = 0;
    uint64_t over_long = 0;  // samples with more than sequence + 1 tokens
    uint64_t no_loss = 0;    // samples that have no learned token, or lost all of them when the end
                             // was cut off
    uint64_t bad = 0;
    std::vector<std::string> errors;  // the first five messages
    std::vector<LengthBin> bins;      // counts by powers of two
};

struct DataReport {
    std::string name, summary;  // DataSet::Name, DataSet::Summary
    std::string note;           // from DataSet::TakeNote, one line each
    int64_t sequence = 0;
    bool pack = true;
    PartReport train, test;
    // For one epoch of the training part; 0 if not all samples were read.
    uint64_t sequences = 0;
    double filled = 0;  // share of positions without padding
    std::vector<ShownSample> shown;
};

// tokenizer: renders the shown samples; null: shows ids. Errors: those of DataSet; errors of
// invalid records only without skip_bad.
Result<DataReport> InspectData(const DataSet& data, const tokenizer::Tokenizer* tokenizer,
                               const InspectOptions& options);

std::string ReportText(const DataReport& report);
nlohmann::ordered_json ReportJson(const DataReport& report);

}  // namespace weft::train
