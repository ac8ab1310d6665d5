// Shows "loading MODEL: 42 %" on standard error while ranks load, with the progress of the slowest
// rank. Only on a terminal, rewritten in place.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cli/terminal/output.h"
#include "cluster/cluster.h"

namespace weft::cli {

class LoadingLine {
  public:
    // what: the text before the percentage. options: used to start the ranks after this call.
    LoadingLine(std::string what, cluster::ClusterOptions& options);
    // Removes the line.
    ~LoadingLine();
    LoadingLine(const LoadingLine&) = delete;
    LoadingLine& operator=(const LoadingLine&) = delete;

  private:
    void Watch();

    const std::string what_;
    std::shared_ptr<std::atomic<int>> loaded_;
    ProgressLine line_;
    std::mutex mutex_;
    std::condition_variable ends_;
    bool over_ = false;
    std::thread watcher_;
};

}  // namespace weft::cli
