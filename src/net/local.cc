#include "net/local.h"

#include <utility>

#include "base/on_threads.h"

namespace weft::net {
namespace {

constexpr int64_t kConnectMs = 10'000;

}  // namespace

Result<LocalMesh> LocalMesh::Make(int size, Transport transport, size_t window_bytes,
                                  uint64_t epoch, Encryption encryption) {
    LocalMesh mesh;
    for (int rank = 0; rank < size; rank++) {
        FabricOptions options;
        options.rank = rank;
        options.size = size;
        options.transport = transport;
        options.window_bytes = window_bytes;
        options.epoch = epoch;
        options.encryption = encryption;
        options.listen_host = "127.0.0.1";
        WEFT_ASSIGN(auto builder, FabricBuilder::Make(std::move(options)));
        mesh.builders_.push_back(std::move(builder));
    }
    mesh.offers_.resize(mesh.builders_.size());
    for (int to = 0; to < size; to++) {
        for (const auto& from : mesh.builders_) {
            mesh.offers_[static_cast<size_t>(to)].push_back(from->OfferTo(to));
        }
    }
    return mesh;
}

Result<Fabric> LocalMesh::Connect(int rank, const Deadline& deadline) {
    const size_t at = static_cast<size_t>(rank);
    std::unique_ptr<FabricBuilder> builder = std::move(builders_[at]);
    return builder->Connect(offers_[at], deadline);
}

void LocalMesh::DropOthers(int rank) {
    for (size_t i = 0; i < builders_.size(); i++) {
        if (i != static_cast<size_t>(rank)) builders_[i].reset();
    }
}

Result<std::vector<Fabric>> MakeLocalFabrics(int size, Transport transport, size_t window_bytes,
                                             uint64_t epoch, Encryption encryption) {
    WEFT_ASSIGN(LocalMesh mesh, LocalMesh::Make(size, transport, window_bytes, epoch, encryption));
    std::vector<Result<Fabric>> made;
    for (int rank = 0; rank < size; rank++) {
        made.emplace_back(MakeError(ErrorCode::kTimeout, "rank {} was never joined", rank));
    }
    const Deadline deadline = Deadline::In(kConnectMs);
    WEFT_TRY(AllAtOnce(made.size(), [&](size_t rank) {
        made[rank] = mesh.Connect(static_cast<int>(rank), deadline);
    }));
    std::vector<Fabric> fabrics;
    for (Result<Fabric>& fabric : made) {
        if (!fabric.ok()) return fabric.error();
        fabrics.push_back(*std::move(fabric));
    }
    return fabrics;
}

}  // namespace weft::net
