#include "train/reference.h"

#include <filesystem>

#include "base/deadline.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "model_files/content.h"
#include "model_files/read_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "train/data_walk.h"
#include "train/dataset_agreement.h"

namespace weft::train {
namespace {

using model_files::hf::Json;

constexpr char kFileName[] = "reference.bin";
constexpr int64_t kTellNs = 10'000'000'000;

// The options of a model that is only evaluated. The model before training has the adapter of
// --lora-from, as in TRL; a new adapter leaves a model as it is, and needs less memory than the
// training of all weights.
TrainerOptions OptionsApart(const TrainerOptions& trainer) {
    TrainerOptions apart = trainer;
    if (trainer.preference.ref_model.empty()) return apart;
    apart.model = trainer.preference.ref_model;
    apart.from_scratch = false;
    if (trainer.lora.on()) {
        apart.lora.from.clear();
        apart.lora.rank = std::max<int64_t>(1, trainer.lora.rank);
    }
    return apart;
}

// Log-probabilities of the same ids: the reference must have the data's tokens.
Status CheckTokens(const model_files::ModelSource& reference, const tokenizer::Tokenizer* data) {
    if (data == nullptr || !model_files::HasTokenizer(reference)) return {};
    WEFT_ASSIGN(const auto own, model_files::LoadTokenizer(reference));
    const int32_t both = std::min(own->vocab_size(), data->vocab_size());
    for (int32_t id = 0; id < both; ++id) {
        if (own->Piece(id) == data->Piece(id)) continue;
        return MakeError(ErrorCode::kUsage,
                         "--ref-model {}: its token {} is not the model's: the reference needs the "
                         "same tokenizer",
                         reference.name(), id);
    }
    return {};
}

}  // namespace

Result<std::string> ReferenceTable::KeyOf(const std::string& model,
                                          const DataIdentity& content) const {
    Json data = JsonOf(content);
    data.erase("name");
    Json key = {{"version", 1},
                {"model", model},
                {"data", data},
                {"pairs", TakesPairs(job_.trainer.preference.loss)},
                {"sequence", job_.data.sequence},
                {"long", job_.data.longs},
                {"seed", job_.data.seed},
                {"day", job_.data.day},
                {"dtype", FlagOf(job_.trainer.dtype)},
                {"lora", job_.trainer.lora.on()}};
    if (job_.trainer.preference.ref_model.empty() && !job_.trainer.lora.from.empty()) {
        WEFT_ASSIGN(key["adapter"], SumOfAdapter(job_.trainer.lora.from));
    }
    return key.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Status ReferenceTable::Open(const model_files::ModelSource& source, const DataIdentity& content,
                            OpenedData& data) {
    const std::string& other = job_.trainer.preference.ref_model;
    std::unique_ptr<model_files::ModelSource> opened;
    if (!other.empty()) {
        WEFT_ASSIGN(opened, model_files::OpenModel(other));
        WEFT_TRY(CheckTokens(*opened, data.tokenizer.get()));
    }
    if (!HasReference(job_.trainer.preference.loss)) return {};
    std::string key;  // on rank 0, which reads and writes the file
    if (cluster_.rank() == 0) {
        WEFT_ASSIGN(const std::string model,
                    model_files::ReadIdentity(opened == nullptr ? source : *opened));
        WEFT_ASSIGN(key, KeyOf(model, content));
    }
    complete_ = complete_ && key == key_;
    key_ = key;
    const uint64_t train = data.set->size(Part::kTrain) * kMostAnswers;
    const uint64_t test = data.set->size(Part::kTest) * kMostAnswers;
    values_.resize(train + test);
    const bool has = cluster_.rank() == 0 && (complete_ || Load());
    WEFT_ASSIGN(const std::vector<std::string> all,
                cluster_.AllGather("reference", has ? "found" : "", Deadline::In(kAgreeMs)));
    found_ = !all.front().empty();
    const std::span<const double> values = values_;
    data.loader.reference = {values.first(train), values.subspan(train)};
    return {};
}

Status ReferenceTable::ComputeApart(bool begins, const OpenedData& data) {
    if (!HasReference(job_.trainer.preference.loss) || found_) return {};
    if (begins && job_.trainer.preference.ref_model.empty()) return {};
    WEFT_ASSIGN(const auto apart, Trainer::Make(OptionsApart(job_.trainer), cluster_));
    WEFT_TRY(Compute(*apart, data));
    groups_ = apart->TakeGroups();
    return {};
}

Status ReferenceTable::ComputeOrShare(Trainer& trainer, const OpenedData& data) {
    if (!HasReference(job_.trainer.preference.loss)) return {};
    if (!found_) return Compute(trainer, data);
    return trainer.ShareFromFirst(std::as_writable_bytes(std::span(values_)));
}

Status ReferenceTable::Compute(Trainer& trainer, const OpenedData& data) {
    const TrainLayout& layout = trainer.layout();
    const uint64_t train = data.set->size(Part::kTrain);
    const uint64_t records = train + data.set->size(Part::kTest);
    uint64_t seen = 0;
    int64_t told_ns = NowNs();
    for (const Part part : {Part::kTrain, Part::kTest}) {
        if (data.set->size(part) == 0) continue;
        LoaderOptions options = data.loader;
        options.part = part;
        options.mixture.reset();
        options.shuffle = false;
        options.epochs = 1;
        options.rank = layout.replica;
        options.ranks = layout.dp;
        options.global_batch = GlobalBatch(job_, layout);
        const uint64_t first = part == Part::kTrain ? 0 : train;
        WEFT_ASSIGN(Loader loader, Loader::Make(*data.set, options));
        while (true) {
            WEFT_TRY(check_time_());
            WEFT_ASSIGN(const auto batch, loader.Next());
            if (!batch) break;
            WEFT_ASSIGN(const std::vector<double> rows, trainer.LogProbabilities(*batch));
            for (size_t i = 0; i < rows.size(); i += 1 + kMostAnswers) {
                if (rows[i] < 0) continue;
                const size_t record = first + static_cast<size_t>(rows[i]);
                std::copy_n(&rows[i + 1], kMostAnswers, &values_[record * kMostAnswers]);
            }
            seen += batch->global_sequences;
            if (cluster_.rank() != 0 || NowNs() - told_ns < kTellNs) continue;
            told_ns = NowNs();
            Log(LogLevel::kInfo, "log-probabilities of the reference model: {} of {} records", seen,
                records);
        }
    }
    found_ = true;
    complete_ = cluster_.rank() == 0;
    if (complete_) Save();
    return {};
}

// ---- The file -----------------------------------------------------------------------------------

bool ReferenceTable::Load() {
    if (job_.save.folder.empty()) return false;
    const std::string path = job_.save.folder + "/" + kFileName;
    const auto file = File::Open(path);
    if (!file.ok()) return false;
    const auto values = std::as_writable_bytes(std::span(values_));
    const Json head = {{"key", key_}};
    const std::string line = head.dump() + "\n";
    std::string there(line.size(), '\0');
    uint64_t sum = 0;
    const uint64_t size = line.size() + values.size() + sizeof(sum);
    complete_ = file->size_bytes() == size &&
                file->ReadAt(0, std::as_writable_bytes(std::span(there))).ok() && there == line &&
                file->ReadAt(line.size(), values).ok() &&
                file->ReadAt(size - sizeof(sum), std::as_writable_bytes(std::span(&sum, 1))).ok() &&
                sum == Checksum64(values);
    return complete_;
}

// A job without the file computes the values again.
void ReferenceTable::Save() const {
    if (job_.save.folder.empty()) return;
    const auto values = std::as_bytes(std::span(values_));
    const Json head = {{"key", key_}};
    const std::string line = head.dump() + "\n";
    const uint64_t sum = Checksum64(values);
    std::vector<std::byte> bytes;
    const auto add = [&](std::span<const std::byte> some) {
        bytes.insert(bytes.end(), some.begin(), some.end());
    };
    add(std::as_bytes(std::span(line)));
    add(values);
    add(std::as_bytes(std::span(&sum, 1)));
    const std::string path = job_.save.folder + "/" + kFileName, part = path + ".part";
    Status written = WriteFile(part, bytes);
    std::error_code failed;
    if (written.ok()) std::filesystem::rename(part, path, failed);
    if (written.ok() && !failed) return;
    Log(LogLevel::kWarning,
        "{} could not be written ({}): a job that resumes computes the log-probabilities of the "
        "reference model again",
        path, written.ok() ? failed.message() : written.error().message);
}

}  // namespace weft::train
