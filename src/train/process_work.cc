#include "train/process_work.h"

#include <utility>

namespace weft::train {

WorkScope::WorkScope(cluster::Cluster& cluster, const backend::Executable& training,
                     std::function<int64_t()> work)
    : cluster_(cluster), training_(training) {
    cluster_.SetProgress(
        [&training, work = std::move(work)] { return training.progress() + work(); });
}

WorkScope::~WorkScope() {
    cluster_.SetProgress([&training = training_] { return training.progress(); });
}

}  // namespace weft::train
