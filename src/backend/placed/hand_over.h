// HandOver: the messages between a device and the host's processor (program/placement.h). It
// replaces the StageLinks of both: values that the device sends to program::kHostPeer go to the
// host's run, and the first value that the device receives from kHostPeer starts that run. Messages
// to other ranks go to their StageLinks.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "backend/communicators.h"
#include "program/placement.h"

namespace weft::backend {

class HandOver {
  public:
    // run: computes a run of the host, with these StageLinks for its messages.
    using Compute = std::function<Status(size_t run, StageLinks& messages)>;
    HandOver(const program::PlacedProgram& placed, Compute compute);

    // Call this before each step. ranks: the links to other ranks; may be null.
    void Begin(StageLinks* ranks) {
        ranks_ = ranks;
        sent_for_ = made_for_ = -1;
    }
    // The links for the device's Program.
    StageLinks& device() { return device_; }

  private:
    class DeviceLinks final : public StageLinks {
      public:
        explicit DeviceLinks(HandOver& all) : all_(all) {}
        Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) override;
        Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) override;

      private:
        HandOver& all_;
    };
    class HostLinks final : public StageLinks {
      public:
        explicit HostLinks(HandOver& all) : all_(all) {}
        Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) override;
        Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) override;

      private:
        HandOver& all_;
    };
    // Values of one run in transit, in order. The next run reuses the memory.
    struct Box {
        std::vector<std::vector<std::byte>> values;
        size_t count = 0, taken = 0;
        void Clear() { count = taken = 0; }
        void Put(std::span<const std::byte> value);
        void Take(std::span<std::byte> out);
    };

    const std::vector<int32_t> run_of_device_;
    const Compute compute_;
    StageLinks* ranks_ = nullptr;
    DeviceLinks device_{*this};
    HostLinks host_{*this};
    Box to_host_, to_device_;
    int32_t sent_for_ = -1, made_for_ = -1;  // the runs that the boxes are for
};

}  // namespace weft::backend
