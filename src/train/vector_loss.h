// Losses over one vector of each text, their value and their derivative by the vectors.
//
//     reward          of a pair, with r the outputs of the score head for the chosen answer c and
//                     the rejected one r, margin m: -log s(r_c - r_r - m) + a (r_c + r_r)^2; s: the
//                     logistic function, a: center_rewards
//     classification  the cross-entropy of a text's label with the outputs of the head
//     contrastive     of an anchor, the cross-entropy of its positive among the positives and
//                     negatives of all records of the update, on all replicas; the logits are
//                     scale * cosine of the vectors
//
// The loss of a batch is the mean over its records, on any ranks. The vectors of `contrastive` are
// pooled (embedding_head.h) from hidden states, here, so that the Program only has rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/embedding_head.h"
#include "train/data/loader.h"
#include "train/data/loss_kind.h"

namespace weft::train {

struct VectorOptions {
    LossKind loss = LossKind::kTokens;
    int64_t labels = 1;         // rows of the score head; 0: as many as the model's head has
    std::string pooling;        // contrastive: "last", "mean" or "cls"; empty: the model's
    double center_rewards = 0;  // reward
    double scale = 20;          // contrastive
    int64_t texts = 2;          // of a record
    bool on() const { return IsOverVectors(loss); }
    // Whether the derivative needs the vectors of the whole batch.
    bool joins() const { return loss == LossKind::kContrastive; }
};

// Errors: kUsage; the message names the flag.
Status CheckVectors(const VectorOptions& options);

// records: of an update. Errors: kUsage (more cosines of anchors and candidates than memory holds).
Status CheckVectorBatch(const VectorOptions& options, uint64_t records);

// The poolings that training supports: a row is an output if the pooling reads it.
Result<model_files::Pooling> PoolingOf(const VectorOptions& options,
                                       const model_files::EmbeddingHead& head);

// Bytes of the host's memory that the loss takes on a rank with the last stage, beside the Program:
// of a micro-batch, the output rows and the derivatives by them; with joins(), of an update, the
// vectors of all `records`, also as unit vectors, the derivatives by the vectors of `own` records,
// and the cosines of anchors and candidates.
uint64_t VectorLossBytes(const VectorOptions& options, uint64_t rows, uint64_t columns,
                         uint64_t records, uint64_t own);

// Values of a batch, summed over its records; a rank has the part of its own records.
struct VectorSums {
    enum Name { kLoss, kAccuracy, kMargin, kReward, kNames };
    std::array<double, kNames> sums{};
    double& operator[](Name name) { return sums[name]; }
};
std::vector<std::string> VectorNames(const VectorOptions& options);
// Means, in the order of VectorNames.
std::vector<double> VectorMeans(const VectorOptions& options, const VectorSums& sums,
                                uint64_t records);

// reward, classification: adds a micro-batch. scores: [texts, labels] of its texts, with the texts
// of a record one after the other. records: the records with texts. Sets `slopes` to the derivative
// by the scores of the mean over `all` records.
void AddScores(const VectorOptions& options, std::span<const Sequence* const> records, uint64_t all,
               std::span<const float> scores, std::span<float> slopes, VectorSums& sums);

// The vector of a text from its output rows, and the derivative by the rows from that by the
// vector. `columns` elements of each row.
void Pool(std::span<const float> rows, size_t columns, std::span<float> vector);
void Unpool(std::span<const float> slope, std::span<float> rows);

// contrastive: vectors: [records, texts, columns] of the whole batch; records of zeros are empty.
// slopes: the derivative by the vectors of records [first, first + count).
struct JoinedBatch {
    std::span<const float> vectors;
    size_t texts = 2, columns = 0, records = 0;  // records: those that are not empty come first
    size_t first = 0, count = 0;
};
VectorSums JoinVectors(const VectorOptions& options, const JoinedBatch& batch, size_t threads,
                       std::span<float> slopes);

}  // namespace weft::train
