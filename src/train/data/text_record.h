// Records of losses over one vector of each text (train/vector_loss.h):
//   {"prompt": P, "chosen": C, "rejected": R, "margin": 0.5}   reward: a pair (preference.h), with
//        an optional margin, 0 by default
//   {"text": T, "label": 2}                          classification: `sentence` is the same as
//        `text`, `labels` the same as `label`
//   {"anchor": A, "positive": P, "negative": N}      contrastive: without negatives, or with
//        negative_1, negative_2, ..., or a list `negatives`. `query` (or `question`) is the same as
//        `anchor`, `pos` (or `answer`) as `positive`, `neg` as `negatives`; a list of one text is
//        the same as the text. All records have as many texts as the first one
// Other members are ignored.
//
// Errors: kCorrupt (the message names the member and the expected value, but not the record's
// position), and those of Encoder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/template/chat_template.h"
#include "model_files/embedding_head.h"
#include "train/data/encoder.h"
#include "train/data/loss_kind.h"
#include "train/data/sample.h"

namespace weft::train {

struct TextForm {
    model_files::Pooling pooling = model_files::Pooling::kLast;
    int64_t most_tokens = 0;  // longer texts are cut, but keep the tokens after a text; 0: no limit
    int64_t labels = 0;       // labels are below it; 0: unknown
    size_t texts = 0;         // of each record; 0: any number
};

// Makes those rows of a text outputs that the pooling reads. The sample gets one more token, which
// serves as the target of the last row.
void MarkRows(model_files::Pooling pooling, Sample& sample);
// MarkRows for the last token that is not padding, as transformers reads a score.
void MarkScore(const Encoder& encoder, Sample& sample);

// The margin of a pair. Errors: kCorrupt.
Result<double> MarginOf(const chat::OrderedJson& record);
// The anchor, its positive and its negatives.
Result<std::vector<std::string>> TextsOf(const chat::OrderedJson& record);

Result<Sample> EncodeTexts(const Encoder& encoder, LossKind loss, const TextForm& form,
                           const chat::OrderedJson& record);

}  // namespace weft::train
