// Parts of `weft train` that need no ranks: looking at data, drawing curves. Each Add... hangs one
// subcommand under `train`; its callback sets `status`, the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "cli/model_words.h"
#include "formats/chat/chat.h"
#include "train/data/loader.h"

namespace weft::cli {

// weft train data inspect.
void AddTrainData(CLI::App& train, int& status);
// weft train plot.
void AddTrainPlot(CLI::App& train, int& status);

// The flags that say what is trained on, the same for `weft train` and `weft train data inspect`.
struct DataFlags {
    std::string data, longs = "truncate";
    int prompt_type = 1;
    int64_t sequence = 1024;
    double test_split = 0;
    uint64_t seed = 0;
    bool no_pack = false, skip_bad = false;
};

// --data, --prompt-type, --seq, --test-split, --seed, --no-pack, --long, --skip-bad.
void AddDataFlags(CLI::App& app, DataFlags& flags);

// A data set with the tokenizer and the template that it is read with.
struct OpenedData {
    std::unique_ptr<formats::Tokenizer> tokenizer;
    std::unique_ptr<formats::Chat> chat;  // null where the model has no template
    std::unique_ptr<train::DataSet> set;
    train::LoaderOptions loader;  // what the flags say; ranks and batch are the caller's
};

// source: the model's. Errors: those of its tokenizer and of the data.
Result<OpenedData> OpenData(const formats::ModelSource& source, const DataFlags& flags);

}  // namespace weft::cli
