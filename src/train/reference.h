// Log-probabilities of the reference model for all records, for losses that need them.
//
// They are computed once, before the first update, and kept in memory and in a file of the output
// folder, which a job that resumes reads. The file states its inputs (model, data, type, ...); if
// they differ, it is computed again. The reference model is --ref-model, or the model before
// training, with the adapter of --lora-from. Without a checkpoint, the latter is the model in
// training (a new adapter begins at zero). Otherwise the reference model is loaded before the model
// in training, and released.
//
// File: a line of JSON with the key; float64 values, kMostAnswers for each record of the training
// part, and then of the test part; their checksum (base/hash.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cluster/cluster.h"
#include "train/data/identity.h"
#include "train/data/open.h"
#include "train/train_job.h"
#include "train/trainer.h"

namespace weft::train {

class ReferenceTable {
  public:
    // The first two arguments must outlive this object. check_time: an error if the job's time
    // limit has passed.
    ReferenceTable(const TrainJob& job, cluster::Cluster& cluster,
                   std::function<Status()> check_time)
        : job_(job), cluster_(cluster), check_time_(std::move(check_time)) {}

    // Allocates the values, and lets the data's loaders read them. Collective: rank 0 looks for the
    // values in memory and in the file. source: the model before training. Errors: those of links
    // and of the reference model's file.
    Status Open(const model_files::ModelSource& source, const DataIdentity& content,
                OpenedData& data);
    // Call before the model in training is loaded. begins: there is no checkpoint. Computes the
    // values with a separately loaded model, if that is necessary. Errors: those of Trainer, Loader
    // and check_time.
    Status ComputeApart(bool begins, const OpenedData& data);
    // The communicators of the model of ComputeApart, if there was one: the model in training gets
    // them.
    std::optional<TrainGroups> TakeGroups() { return std::exchange(groups_, {}); }
    // Gives all ranks the values, or computes them with the model in training, which is then the
    // reference model. Errors: as for ComputeApart.
    Status ComputeOrShare(Trainer& trainer, const OpenedData& data);

  private:
    Result<std::string> KeyOf(const std::string& model, const DataIdentity& content) const;
    bool Load();
    void Save() const;
    Status Compute(Trainer& trainer, const OpenedData& data);

    const TrainJob& job_;
    cluster::Cluster& cluster_;
    const std::function<Status()> check_time_;
    std::string key_;
    std::vector<double> values_;
    bool complete_ = false;  // on rank 0: values_ belong to key_
    bool found_ = false;     // the same on all ranks: rank 0 has the values
    std::optional<TrainGroups> groups_;
};

}  // namespace weft::train
