// What a run is trained on, from the words of the command line to a data set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "model_files/model_file.h"
#include "train/data/loader.h"

namespace weft::train {

// As the user gave it, and as it travels to other ranks.
struct DatasetOptions {
    std::vector<std::string> data;  // files and folders, or one of random tokens
    std::string longs = "truncate", control_tokens = "auto";
    int prompt_type = 1;
    int64_t sequence = 1024;
    double test_split = 0;
    uint64_t seed = 0;
    bool pack = true, shuffle = true, skip_bad = false;
    // A checkpoint of other data is gone on from at the start of these.
    bool renewed = false;
};

// What the data are called in messages.
std::string DataName(const DatasetOptions& words);

// A data set with the tokenizer and the template that it is read with.
struct OpenedData {
    std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null where the model has none
    std::unique_ptr<chat::Chat> chat;                 // null where the model has no template
    std::unique_ptr<DataSet> set;
    LoaderOptions loader;  // what the words say; ranks and batch are the caller's
};

// source: the model's. vocab: rows of its embedding, which all ids are below; 0: it is a vocabulary
// alone. Random tokens need no tokenizer, and neither do records of token ids. Errors: kUsage
// (a word), those of the tokenizer and of the data.
Result<OpenedData> OpenData(const model_files::ModelSource& source, const DatasetOptions& words,
                            int64_t vocab);

}  // namespace weft::train
