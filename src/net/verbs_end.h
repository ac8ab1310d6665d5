// One end of a verbs link: device, protection domain, memory, completion queues and queue pair.
//
//     VerbsDevices devices;                                   // of a Fabric; opens each once
//     VerbsEnd end = devices.MakeEnd(path, window_bytes)      // queue pair in INIT
//     end->address()                                          // for the offer
//     end->Connect(address of the peer)                       // ready to receive and to send
//
// An end has two registrations: the region that the peer writes (kVerbsWindowAt bytes of flags,
// then the window), and a staging area that only this host reads. Destructors release everything in
// reverse order of construction, even if the construction of an end failed midway.
// Errors: kUnsupported (built without verbs), kNotFound, kDenied, kOutOfMemory (memlock), kIo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/socket.h"
#include "net/verbs_device.h"
#include "net/wait_policy.h"

namespace weft::net {

// Whether this program was built with libibverbs.
bool VerbsBuilt();

class VerbsEnd {
  public:
    virtual ~VerbsEnd() = default;
    virtual const VerbsAddress& address() const = 0;
    // "mlx5_0:1 10.0.0.1", for messages.
    virtual const std::string& name() const = 0;
    virtual Status Connect(const VerbsAddress& peer) = 0;
};

class VerbsDevice;

class VerbsDevices {
  public:
    VerbsDevices();
    ~VerbsDevices();
    Result<std::unique_ptr<VerbsEnd>> MakeEnd(const RdmaPath& path, size_t window_bytes);

  private:
    std::map<std::string, std::shared_ptr<VerbsDevice>> open_;  // each is shared by the ends on it
};

// end: connected (VerbsEnd::Connect), as the peer's end must be. socket: a connection to the peer's
// process. Both ranks must have exchanged their greetings on it after they connected their ends.
std::unique_ptr<BaseLink> MakeVerbsLink(Progress& progress, PeerName peer,
                                        std::unique_ptr<VerbsEnd> end, Fd socket);

}  // namespace weft::net
