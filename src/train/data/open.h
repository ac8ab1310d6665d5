// Opens the data set that the options of the command line describe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat.h"
#include "model/hyper.h"
#include "model_files/model_file.h"
#include "train/data/loader.h"

namespace weft::train {

// The options as the user gave them, and as rank 0 sends them to other ranks.
struct DatasetOptions {
    std::vector<std::string> data;  // files and folders, or one synthetic specification
    std::vector<double> weights;    // one for each of `data` (mixture.h); empty: all records
    std::string longs = "truncate", control_tokens = "auto";
    int prompt_type = 1;
    std::string loss = "sft";  // LossName
    int64_t labels = 0;        // classification: 0: the number of labels of the model's score head
    std::string pooling;       // contrastive: empty: the model's pooling
    int64_t sequence = 0;      // positions of a sequence; 0: the default (SetSequence)
    int64_t completion = 0;    // of them, those that the model generates (grpo)
    double test_split = 0;
    uint64_t seed = 0;
    bool pack = true, shuffle = true, skip_bad = false;
    // A job that resumes from a checkpoint with different data continues at the start of this data.
    bool renewed = false;
    std::string day;  // that chat templates show (day.h)
};

// Most positions of a sequence by default.
inline constexpr int64_t kDefaultSequence = 1024;
// Sets the sequence length for this model: if it is 0, to kDefaultSequence or to the model's
// context, whichever is shorter. Errors: kUsage: it exceeds the model's context.
Status SetSequence(const model::Hyper& hyper, int64_t& sequence);

// The name of the data in messages.
std::string DataName(const DatasetOptions& words);

// A data set with its tokenizer and chat template.
struct OpenedData {
    std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: the model has none
    std::unique_ptr<chat::Chat> chat;                 // null: the model has no template
    std::unique_ptr<DataSet> set;
    LoaderOptions loader;  // set from the options; the caller sets ranks and batch
};

// source: the model's source. vocab: number of rows of the model's embedding, an upper bound of all
// ids; 0: the tokenizer's size. Random tokens and records of token ids need no tokenizer. Errors:
// kUsage (an option), errors of the tokenizer and of the data.
Result<OpenedData> OpenData(const model_files::ModelSource& source, const DatasetOptions& words,
                            int64_t vocab);

}  // namespace weft::train
