// Finds, loads, starts and ends an MPI library in this process, through a plug-in (abi.h).
//
//     WEFT_ASSIGN(auto mpi, MpiLibrary::Load("openmpi"));     contacts no process yet
//     WEFT_TRY(mpi->Start(Deadline::In(60'000)));             all ranks must call it
//     mpi->Broadcast(...), mpi->AllGather(...)                small data, before links exist
//     ... links over mpi->Send, Receive, Test ...
//     mpi->Finish(deadline)                                   ends MPI: all ranks must call it
//
// Any MPI call may block, so a second thread watches Start and Finish: if the deadline passes, this
// thread prints the reason and ends the process with the exit status of a lost peer. Other
// operations only start; Test returns whether they are done.
//
// After a fault the process makes no more MPI calls. Abandon() makes every later call fail. It also
// keeps the memory to which the MPI library may still write, until the process ends. After
// Abandon(), Finish does nothing. The process should end with _exit. Thread: only the one that
// called Start.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "net/mpi/abi.h"

namespace weft::net {

struct MpiPlugin {
    std::string flavour;  // "openmpi", "mpich"
    std::string path;
};

// Searches $WEFT_PLUGIN_DIR for plug-ins. If it is not set, searches the program's folder, the path
// relative to it that cmake/install.cmake sets, and lib/weft next to the program's folder. Looks
// only at file names; loads nothing.
std::vector<MpiPlugin> FindMpiPlugins();

class MpiLibrary {
  public:
    // Errors: kUnsupported (no such plug-in, no MPI library, or another version).
    static Result<std::unique_ptr<MpiLibrary>> Load(std::string_view flavour);
    ~MpiLibrary();
    MpiLibrary(const MpiLibrary&) = delete;
    MpiLibrary& operator=(const MpiLibrary&) = delete;

    Status Start(const Deadline& deadline);
    Status Finish(const Deadline& deadline);
    int rank() const { return rank_; }
    int size() const { return size_; }
    const std::string& name() const { return name_; }  // "Open MPI v4.1.4"
    // A random number that the ranks of one MPI launch share. Tells whether two ranks can reach
    // each other over MPI.
    const std::string& job_id() const { return job_id_; }

    // Collective. data: the same length on all ranks. Errors: kTimeout, kIo.
    Status Broadcast(std::span<std::byte> data, int root, const Deadline& deadline);
    // Collective. all: receives size() parts of mine.size() bytes, by rank.
    Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all,
                     const Deadline& deadline);

    // These four functions are the hot path. Each returns 0, or an error code for ErrorText. `data`
    // and `request` must stay valid until Test reports done.
    int Send(std::span<const std::byte> data, int peer, int tag, WeftMpiRequest& request) {
        return started_ ? api_->isend(data.data(), data.size(), peer, tag, &request) : kGone;
    }
    int Receive(std::span<std::byte> data, int peer, int tag, WeftMpiRequest& request) {
        return started_ ? api_->irecv(data.data(), data.size(), peer, tag, &request) : kGone;
    }
    int Test(WeftMpiRequest& request, bool& done, size_t& bytes) {
        if (!started_) return kGone;
        int is_done = 0;
        const int error = api_->test(&request, &is_done, &bytes);
        done = is_done != 0;
        return error;
    }
    int Cancel(WeftMpiRequest& request) { return started_ ? api_->cancel(&request) : kGone; }
    std::string ErrorText(int error) const;

    bool started() const { return started_; }
    void Abandon();
    // Keeps `memory` as long as this object exists. After Abandon, this object exists until the
    // process ends.
    void Keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }
    // A tag for a bulk message (inbox.h), 1 to kMostTag - 1, which no recent bulk message has used.
    uint32_t NextBulkTag();

  private:
    static constexpr int kGone = -1;
    MpiLibrary() = default;
    Status Await(WeftMpiRequest& request, const char* what, const Deadline& deadline);

    const WeftMpiApi* api_ = nullptr;
    bool started_ = false;
    int rank_ = 0;
    int size_ = 1;
    uint32_t bulk_tag_ = 0;
    std::string name_;
    std::string job_id_;
    std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace weft::net
