#include "train/batch_ahead.h"

#include <utility>

#include "base/start_thread.h"
#include "hw/cpu.h"

namespace weft::train {

std::vector<int> ReadingCores(const cluster::Cluster& cluster, int threads) {
    std::vector<int> cores = cluster.cores();
    const auto most = static_cast<size_t>(threads);
    if (threads > 0 && most < cores.size()) cores.resize(most);
    return cores;
}

BatchAhead::BatchAhead(Loader& loader, std::vector<int> cores)
    : loader_(loader),
      cores_(std::move(cores)),
      cursor_(loader.cursor()),
      counts_(loader.counts()),
      first_epoch_(loader.first_epoch()) {
    loader_.ReadOn(cores_);
}

BatchAhead::~BatchAhead() {
    if (thread_.joinable()) thread_.join();
}

Result<std::optional<Batch>> BatchAhead::Next(bool reads_on) {
    if (thread_.joinable()) {
        thread_.join();
    } else {
        read_ = loader_.Next();
    }
    auto batch = std::move(read_);
    cursor_ = loader_.cursor();
    counts_ = loader_.counts();
    first_epoch_ = loader_.first_epoch();
    if (!reads_on || !batch.ok() || !*batch) return batch;
    const auto read = [this] {
        RunThisThreadOn(cores_);
        read_ = loader_.Next();
    };
    // (Without a thread, the next call reads.)
    (void)StartThread(thread_, read, {.wait_ms = 0, .signals = false});
    return batch;
}

}  // namespace weft::train
