// An MPI library in this process, through a plug-in (abi.h): found, loaded, started, ended.
//
//     WEFT_ASSIGN(auto mpi, MpiLibrary::Load("openmpi"));     no process is met yet
//     WEFT_TRY(mpi->Start(Deadline::In(60'000)));             all ranks must call it
//     mpi->Broadcast(...), mpi->AllGather(...)                small things, before any link
//     ... links over mpi->Send, Receive, Test ...
//     mpi->Finish(deadline)                                   the clean end: all ranks must call it
//
// MPI blocks where it likes, so Start and Finish are watched: past the deadline the process prints
// why and ends with the status of a lost peer. All else is begun and then tested.
//
// After a fault MPI is left alone: Abandon() makes every later call fail, keeps alive for the rest
// of the process what the library may still write to, and Finish does nothing. The process should
// then end with _exit.
// Thread: one, that of Start.
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

// Those in $WEFT_PLUGIN_DIR, else beside this program, else where cmake/install.cmake puts them as
// seen from it, else in lib/weft next to its folder.
// Looks at names only: nothing is loaded.
std::vector<MpiPlugin> FindMpiPlugins();

class MpiLibrary {
  public:
    // Errors: kUnsupported (no such plug-in, its MPI library is missing, or another version).
    static Result<std::unique_ptr<MpiLibrary>> Load(std::string_view flavour);
    ~MpiLibrary();
    MpiLibrary(const MpiLibrary&) = delete;
    MpiLibrary& operator=(const MpiLibrary&) = delete;

    Status Start(const Deadline& deadline);
    Status Finish(const Deadline& deadline);
    int rank() const { return rank_; }
    int size() const { return size_; }
    const std::string& name() const { return name_; }  // "Open MPI v4.1.4"
    // The same random number on all ranks of one Start, and on no others: "may we talk over MPI?".
    const std::string& job_id() const { return job_id_; }

    // data: the same length on all ranks. Errors: kTimeout, kIo.
    Status Broadcast(std::span<std::byte> data, int root, const Deadline& deadline);
    // all: size() parts of mine.size() bytes.
    Status AllGather(std::span<const std::byte> mine, std::span<std::byte> all,
                     const Deadline& deadline);

    // The hot path. 0, or an error code for ErrorText. Memory must live until Test says done.
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
    // `memory` stays alive as long as this object, which after Abandon is as long as the process.
    void Keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }
    // A number that no bulk message to this peer had lately; 1 to kMostTag - 1.
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
