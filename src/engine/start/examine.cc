#include "engine/start/examine.h"

#include <algorithm>
#include <utility>

#include "base/field_codec.h"
#include "cluster/frame.h"
#include "engine/rank/weight_stream.h"
#include "engine/start/layout_choice.h"
#include "engine/start/verify_model.h"
#include "hw/cpu.h"
#include "model_files/content.h"
#include "net/offer.h"

namespace weft::engine {
namespace {

// The would-be cluster, of which only this rank exists: values of all ranks are this rank's.
class Prospect final : public cluster::Cluster {
  public:
    Prospect(const cluster::JoinRequest& request, const std::vector<std::string>& boots)
        : request_(request) {
        hosts_.resize(static_cast<size_t>(request.size));
        for (size_t rank = 0; rank < std::min(boots.size(), hosts_.size()); ++rank) {
            hosts_[rank].boot_id = boots[rank];
        }
        cluster::HostInfo& own = hosts_[static_cast<size_t>(request.rank)];
        own = cluster::ThisHost(AllowedCores());
        for (int rank = 0; rank < request.size; ++rank) {
            shares_host_ |= rank != request.rank && host(rank).boot_id == own.boot_id;
        }
    }
    // Whether another rank is on this host; it would release a part of its share.
    bool shares_host() const { return shares_host_; }

    int rank() const override { return request_.rank; }
    int size() const override { return request_.size; }
    const std::string& job() const override { return request_.job; }
    const cluster::HostInfo& host(int rank) const override {
        return hosts_[static_cast<size_t>(rank)];
    }
    const std::vector<int>& cores() const override { return host(request_.rank).cores; }
    bool cores_shared() const override { return shares_host_; }
    int64_t timeout_ms() const override { return 5000; }
    net::Fabric& fabric() override { return fabric_; }
    net::PeerMonitor* monitor() override { return nullptr; }
    void SetProgress(std::function<int64_t()>) override {}
    void SetPhase(const char*) override {}
    Status Agree(const std::string&, const std::string&, const Deadline&) override { return {}; }
    Result<std::vector<std::string>> AllGather(const std::string&, const std::string& mine,
                                               const Deadline&) override {
        std::vector<std::string> values(hosts_.size());
        values[static_cast<size_t>(request_.rank)] = mine;
        return values;
    }
    Status Barrier(const std::string&, const Deadline&) override { return {}; }
    Status Shutdown(const Deadline&) override { return {}; }
    Error ReportFailure(Error error) override { return error; }
    bool should_report() const override { return false; }
    bool recovers() const override { return false; }
    Result<cluster::EpochInfo> NextEpoch(Error error, const Replan&) override { return error; }
    void RequestStop() override {}
    bool stop_requested() const override { return false; }

  private:
    const cluster::JoinRequest& request_;
    std::vector<cluster::HostInfo> hosts_;
    bool shares_host_ = false;
    net::Fabric fabric_;
};

constexpr auto kTermsFields = [](auto& terms, auto& visit) {
    visit("fingerprint", terms.fingerprint);
    visit("copy", terms.copy);
    visit("identity", terms.identity);
    visit("adapters", terms.adapters);
    visit("identities", terms.identities);
    visit("boots", terms.boots);
    visit("tp", terms.tp, FieldRange{0, cluster::kMostRanks});
    visit("pp", terms.pp, FieldRange{0, cluster::kMostRanks});
};

// Opens the model from this host, or as rank 0 would stream it.
Result<std::unique_ptr<model_files::ModelSource>> OpenSame(const Job& job, const Terms& terms) {
    if (job.feed) {
        WEFT_ASSIGN(auto fed, StreamedSource::Parse(terms.header));
        return std::unique_ptr<model_files::ModelSource>(std::move(fed));
    }
    WEFT_ASSIGN(auto source, OpenModelOf(job));
    WEFT_TRY(
        CheckCopy(*source, terms, "Copy the same file to every host, or give --weights-from 0"));
    return source;
}

}  // namespace

// The header is binary, which JSON does not hold.
std::string EncodeTerms(const Terms& terms) {
    return cluster::PackStrings({EncodeFields(terms, kTermsFields), terms.header});
}

Result<Terms> DecodeTerms(const std::string& bytes) {
    Terms terms;
    if (bytes.empty()) return terms;
    const auto parts = cluster::UnpackStrings(bytes);
    if (!parts.ok() || parts->size() != 2) {
        return MakeError(ErrorCode::kCorrupt,
                         "the terms of rank 0: {} bytes are not fields and a header", bytes.size());
    }
    WEFT_TRY(DecodeFields("the terms of rank 0", parts->front(), kTermsFields, terms));
    terms.header = parts->back();
    return terms;
}

Result<Terms> TermsOf(const model_files::ModelSource& source, const ModelIdentity& identity) {
    Terms terms;
    WEFT_ASSIGN(terms.fingerprint, source.Fingerprint());
    terms.copy = CopyId(AllFiles(source), net::BootId());
    if (identity.whole) {
        terms.identity = identity.model;
        terms.adapters = identity.adapters;
    }
    return terms;
}

Status CheckCopy(const model_files::ModelSource& source, const Terms& terms,
                 const std::string& advice) {
    const auto check = [&](const char* what, const std::string& mine, const std::string& theirs) {
        if (theirs.empty() || mine == theirs) return Status();
        return Status(MakeError(ErrorCode::kDenied,
                                "{} differs from rank 0's {} ({} here, {} there). {}",
                                source.name(), what, mine, theirs, advice));
    };
    WEFT_ASSIGN(const std::string fingerprint, source.Fingerprint());
    WEFT_TRY(check("model file", fingerprint, terms.fingerprint));
    const auto files = AllFiles(source);
    const bool partial = std::ranges::any_of(files, &model_files::WeightFile::is_partial);
    if (partial || CopyId(files, net::BootId()) == terms.copy) return {};
    // (If rank 0's identity is not known, the ranks compare the sums, which the cache then has.)
    WEFT_ASSIGN(const std::string identity, model_files::ReadIdentity(source));
    WEFT_TRY(check("model file", identity, terms.identity));
    WEFT_ASSIGN(const std::string adapters, model_files::ReadAdaptersIdentity(source));
    return check("LoRA adapters", adapters, terms.adapters);
}

Status SendTerms(Rank& rank) {
    cluster::Cluster& cluster = rank.cluster();
    if (!cluster.recovers()) return {};
    Terms terms;
    terms.fingerprint = rank.fingerprint();
    if (!rank.job().feed) {
        WEFT_ASSIGN(terms, TermsOf(rank.source(), rank.identity()));
    }
    terms.identities = rank.identities();
    terms.tp = rank.layout().tp;
    terms.pp = rank.layout().pp;
    for (int r = 0; r < cluster.size(); ++r) terms.boots.push_back(cluster.host(r).boot_id);
    if (rank.job().feed) {
        WEFT_ASSIGN(terms.header, StreamHeader(rank.source()));
    }
    cluster.SetJoinFingerprint(EncodeTerms(terms));
    return {};
}

Status Examine(const cluster::JoinRequest& request) {
    WEFT_ASSIGN(const Terms terms, DecodeTerms(request.terms));
    WEFT_ASSIGN(Job job, JobFromJson(request.job, request.folders));
    if (job.feed && terms.header.empty()) return {};
    const bool measured = job.split_auto;  // by shares that are not known yet
    job.split_auto = job.power = false;
    if (LeavesLayoutOpen(job) && terms.tp * terms.pp == request.size) {
        job.tp = terms.tp;
        job.pp = terms.pp;
    }
    Prospect cluster(request, terms.boots);
    WEFT_ASSIGN(auto source, OpenSame(job, terms));
    WEFT_ASSIGN(const auto rank, Rank::Make(job, cluster, std::move(source)));
    const uint64_t freed = cluster.shares_host() ? rank->source().TotalBytes() : 0;
    return rank->CheckAlone(terms.identities, measured ? UINT64_MAX / 2 : freed);
}

}  // namespace weft::engine
