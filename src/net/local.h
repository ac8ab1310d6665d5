// Makes Fabrics whose ranks all start from one process, for tests, benchmarks and `weft net
// --local`.
//
//     LocalMesh mesh = LocalMesh::Make(4, Transport::kShm, 1 << 20).value();
//     for (r...) if (fork() == 0) { Fabric f = mesh.Connect(r, Deadline::In(2000)).value(); ... }
//
// Make exchanges the offers, so each rank can connect in its own thread or forked process.
// MakeLocalFabrics connects all ranks at once, for tests that run ranks on threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/fabric.h"

namespace weft::net {

class LocalMesh {
  public:
    static Result<LocalMesh> Make(int size, Transport transport, size_t window_bytes,
                                  uint64_t epoch = 1,
                                  Encryption encryption = Encryption::kBetweenHosts);
    int size() const { return static_cast<int>(builders_.size()); }
    // Call it once per rank, each in its own thread or process.
    Result<Fabric> Connect(int rank, const Deadline& deadline);
    // Call in a forked process: closes the listeners of all ranks but `rank`.
    void DropOthers(int rank);

  private:
    std::vector<std::unique_ptr<FabricBuilder>> builders_;
    std::vector<std::vector<std::string>> offers_;  // [to][from]
};

// result[r] is rank r's Fabric.
Result<std::vector<Fabric>> MakeLocalFabrics(int size, Transport transport, size_t window_bytes,
                                             uint64_t epoch = 1,
                                             Encryption encryption = Encryption::kBetweenHosts);

}  // namespace weft::net
