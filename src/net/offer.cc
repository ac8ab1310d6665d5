#include "net/offer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/byte_codec.h"

namespace weft::net {
namespace {

constexpr std::string_view kMagic = "WOF5";
constexpr size_t kMostString = 255;
constexpr size_t kMostReason = 1023;
constexpr int kMostRanks = 4096;

template <typename Fields>
void ListVerbs(Fields& fields, auto& offer) {
    bool present = offer.verbs.has_value();
    fields(present);
    if (!present) return fields.template Cut<uint16_t>(offer.verbs_why, kMostReason);
    if constexpr (Fields::kReads) offer.verbs.emplace();
    auto& v = *offer.verbs;
    fields(v.infiniband, v.mtu, v.lid, v.qpn, v.psn, v.rkey, v.region, v.gid);
    fields.Check(Plausible(v, offer.window_bytes), "is impossible for a queue pair");
}

void List(auto& fields, auto& offer) {
    std::array<char, kMagic.size()> magic;
    std::ranges::copy(kMagic, magic.begin());
    fields(magic, offer.from, offer.to, offer.size, offer.epoch, offer.window_bytes,
           offer.transport, offer.checksum, offer.hidden, offer.encryption, offer.token,
           offer.secret);
    fields.Check(std::ranges::equal(magic, kMagic) && offer.size <= kMostRanks && offer.from >= 0 &&
                     offer.from < offer.size && offer.to >= 0 && offer.to < offer.size &&
                     offer.encryption <= Encryption::kAlways && offer.transport <= Transport::kMpi,
                 "is malformed");
    for (auto* text : {&offer.boot_id, &offer.network, &offer.unix_name, &offer.tcp_host}) {
        fields.Cut(*text, kMostString);
    }
    fields(offer.tcp_port);
    fields.CutList(offer.tcp_more, kMostTcpWays, [](auto& each, auto& way) {
        each.Cut(way.host, kMostString);
        each(way.port);
    });
    ListVerbs(fields, offer);
    fields.Cut(offer.mpi_job, kMostString);
    fields(offer.mpi_rank);
    fields.Check(offer.mpi_rank >= 0, "is malformed");
}

}  // namespace

bool TokensEqual(const Token& a, const Token& b) {
    unsigned different = 0;
    for (size_t i = 0; i < a.size(); i++) different |= unsigned{a[i]} ^ unsigned { b[i] };
    return different == 0;
}

std::string EncodeOffer(const Offer& offer) {
    ByteFieldWriter<uint8_t> writer;
    List(writer, offer);
    return writer.TakeText();
}

Result<Offer> DecodeOffer(std::string_view bytes) {
    ByteFieldReader<uint8_t> reader(bytes);
    Offer offer;
    List(reader, offer);
    if (reader.done()) return offer;
    return MakeError(ErrorCode::kCorrupt,
                     "an offer of {} bytes for a data link is malformed. Do all hosts run the "
                     "same version of weft?",
                     bytes.size());
}

std::string BootId() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    std::getline(file, id);
    return id;
}

std::string NetworkNamespace() {
    char target[64];
    const ssize_t length = ::readlink("/proc/self/ns/net", target, sizeof target);
    return length > 0 ? std::string(target, static_cast<size_t>(length)) : std::string();
}

std::string KernelId(const std::string& boot_id, const std::string& network) {
    return boot_id.empty() || network.empty() ? std::string() : boot_id + network;
}

namespace {

bool InOneKernel(const Offer& mine, const Offer& theirs) {
    const std::string kernel = KernelId(mine.boot_id, mine.network);
    return !kernel.empty() && kernel == KernelId(theirs.boot_id, theirs.network);
}

}  // namespace

bool IsEncrypted(const Offer& mine, const Offer& theirs) {
    return mine.encryption == Encryption::kAlways ||
           (mine.encryption == Encryption::kBetweenHosts && !InOneKernel(mine, theirs));
}

static const char* EncryptionWords(Encryption encryption) {
    return encryption == Encryption::kNever ? "does not encrypt" : "encrypts";
}

Status CheckSameOptions(const Offer& mine, const Offer& theirs, const std::string& name) {
    if (theirs.checksum != mine.checksum) {
        return MakeError(ErrorCode::kUsage,
                         "{} {} checksums, rank {} {}. Give all ranks --checksum, or none.", name,
                         theirs.checksum ? "sends" : "sends no", mine.from,
                         mine.checksum ? "does" : "does not");
    }
    if (theirs.encryption == mine.encryption) return {};
    return MakeError(ErrorCode::kUsage,
                     "{} {} tcp links between hosts, rank {} {}. Give all ranks --plain-links, or "
                     "none.",
                     name, EncryptionWords(theirs.encryption), mine.from,
                     EncryptionWords(mine.encryption));
}

Result<Transport> ChooseTransport(const Offer& mine, const Offer& theirs) {
    if (mine.transport != theirs.transport) {
        return MakeError(ErrorCode::kUsage,
                         "ranks {} and {} were given different transports: {} and {}. Give all "
                         "ranks the same --transport.",
                         mine.from, theirs.from, TransportName(mine.transport),
                         TransportName(theirs.transport));
    }
    const bool one_host = InOneKernel(mine, theirs);
    const bool one_mpi_job = !mine.mpi_job.empty() && mine.mpi_job == theirs.mpi_job;
    switch (mine.transport) {
        case Transport::kAuto:
            if (one_host && !mine.unix_name.empty() && !theirs.unix_name.empty()) {
                return Transport::kShm;
            }
            if (mine.verbs && theirs.verbs && WhyNotJoined(*mine.verbs, *theirs.verbs).empty()) {
                return Transport::kVerbs;
            }
            return one_mpi_job ? Transport::kMpi : Transport::kTcp;
        case Transport::kTcp: return Transport::kTcp;
        case Transport::kShm:
            if (one_host) return Transport::kShm;
            return MakeError(ErrorCode::kUsage,
                             "--transport shm joins ranks of one host, but ranks {} and {} are on "
                             "two (or in two network namespaces). Use --transport auto or tcp.",
                             mine.from, theirs.from);
        case Transport::kMpi:
            if (one_mpi_job) return Transport::kMpi;
            return MakeError(ErrorCode::kUsage,
                             "--transport mpi joins ranks that one MPI launcher started; ranks {} "
                             "and {} were not. Start all ranks by one mpirun, or use --transport "
                             "auto or tcp.",
                             mine.from, theirs.from);
        case Transport::kVerbs: break;
    }
    const std::string why = WhyNotVerbs(mine, theirs);
    if (why.empty() && mine.verbs && theirs.verbs) return Transport::kVerbs;
    return MakeError(ErrorCode::kNotFound, "--transport verbs: {}",
                     why.empty() ? "neither rank offers an RDMA device" : why);
}

std::string WhyNotVerbs(const Offer& mine, const Offer& theirs) {
    for (const Offer* offer : {&mine, &theirs}) {
        if (!offer->verbs_why.empty()) {
            return fmt::format("rank {}: {}", offer->from, offer->verbs_why);
        }
    }
    std::string why;
    if (mine.verbs && theirs.verbs) {
        why = WhyNotJoined(*mine.verbs, *theirs.verbs);
        if (!why.empty()) why = fmt::format("ranks {} and {}: {}", mine.from, theirs.from, why);
    } else if (mine.verbs || theirs.verbs) {
        why = fmt::format("rank {} has no RDMA device", mine.verbs ? theirs.from : mine.from);
    }
    return why;
}

}  // namespace weft::net
