#include "doctor/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/on_threads.h"
#include "base/shell_word.h"
#include "hw/cpu.h"
#include "model_files/content.h"
#include "model_files/model_file.h"

namespace weft::doctor {
namespace {

// 1 TB at 150 MB/s. (ssh notices a host that dies.)
constexpr int64_t kModelMs = 7'200'000;
constexpr size_t kMostTextBytes = 64 << 20;
constexpr size_t kShownDigits = 16;
constexpr char kExpected[] = "the same bytes on every host";
constexpr char kWhy[] = "a host with another copy of the weights gives wrong answers";

using model_files::FileContent;

struct Copy {
    std::string host;
    std::vector<FileContent> files;
    std::string Digest() const { return model_files::Content{files}.Digest(); }
    uint64_t bytes() const { return model_files::Content{files}.bytes(); }
};

Result<std::vector<FileContent>> ParseContent(std::string_view text) {
    std::vector<FileContent> files;
    for (std::string_view line : Lines(text)) {
        if (line.empty()) continue;
        WEFT_ASSIGN(files.emplace_back(), model_files::FileContentFromJson(std::string(line)));
    }
    if (!files.empty()) return files;
    return MakeError(ErrorCode::kCorrupt, "the answer has no hashes of files");
}

// A path that has the same meaning in other working folders.
std::string AbsoluteWord(const std::string& word) {
    std::error_code error;
    if (!std::filesystem::exists(word, error)) return word;
    const auto path = std::filesystem::absolute(word, error);
    return error ? word : path.lexically_normal().string();
}

Finding NotRead(const std::string& host, const std::string& word, const std::string& why,
                Severity severity) {
    return {kModelCheck,
            severity,
            host,
            why,
            fmt::format("{} is there and complete", word),
            "a rank on this host needs the model's files",
            "copy the model to this host, or start the job with --weights-from 0"};
}

void Compare(const std::vector<Copy>& copies, Findings& out) {
    const Copy& first = copies.front();
    const auto same = [&](const Copy& copy) { return copy.Digest() == first.Digest(); };
    if (std::ranges::all_of(copies, same)) {
        std::vector<std::string> names;
        for (const Copy& copy : copies) names.push_back(copy.host);
        const std::string where =
            copies.size() == 1 ? "" : fmt::format(", equal on {}", fmt::join(names, ", "));
        return out.Ok(fmt::format(
            "{}: complete, {:.2f} GB in {} file{}, hash {}{}", first.files.front().path,
            static_cast<double>(first.bytes()) * 1e-9, first.files.size(),
            first.files.size() == 1 ? "" : "s", first.Digest().substr(0, kShownDigits), where));
    }
    for (size_t i = 0; i < first.files.size(); ++i) {
        std::vector<model_files::FileCopy> files;
        for (const Copy& copy : copies) {
            if (copy.files.size() != first.files.size()) {
                return out.Fail(fmt::format("{} files on {}, {} on {}", first.files.size(),
                                            first.host, copy.files.size(), copy.host),
                                kExpected, kWhy, "copy the same files to every host");
            }
            files.push_back({copy.host, copy.files[i]});
        }
        const std::string text = model_files::CompareCopies(files);
        if (text.empty()) continue;
        const size_t end = text.rfind(". ");  // (a path may have one, too)
        return out.Fail(text.substr(0, end), kExpected, kWhy, text.substr(end + 2));
    }
}

}  // namespace

Result<std::string> ModelContentText(const std::string& word,
                                     const std::function<void(double done)>& progress) {
    WEFT_ASSIGN(const auto source, model_files::OpenModel(word));
    const std::vector<const model_files::WeightFile*> files = source->Files();
    if (files.empty()) {
        return MakeError(ErrorCode::kUsage, "--model {}: this model has no files", word);
    }
    model_files::ReadContentOptions options{.threads = AllowedCores().size(), .anew = true};
    options.progress = [&](uint64_t done, uint64_t all) -> Status {
        if (progress) progress(static_cast<double>(done) / static_cast<double>(all));
        return {};
    };
    WEFT_ASSIGN(const model_files::Content content, model_files::ReadContent(files, options));
    std::string text;
    for (const FileContent& file : content.files) {
        text += model_files::FileContentToJson(file, SIZE_MAX) + "\n";
    }
    return text;
}

Result<std::vector<Finding>> CheckModel(const std::string& word, const std::string& host,
                                        const std::vector<std::string>& hosts,
                                        const CollectOptions& options,
                                        const std::function<void(double done)>& progress) {
    const std::string meant = AbsoluteWord(word);
    const std::string command =
        fmt::format("{} doctor --model-content {}", options.program, ShellWord(meant));
    std::vector<std::string> names;
    for (const std::string& one : hosts) {
        WEFT_ASSIGN(names.emplace_back(), SshName(one));
    }
    std::vector<std::optional<Result<std::string>>> texts(hosts.size());
    Result<std::string> own = std::string();
    WEFT_TRY(OnThreads(hosts.size() + 1, hosts.size() + 1, [&](size_t i) {
        if (i == hosts.size()) {
            own = ModelContentText(meant, progress);
            return Status();
        }
        texts[i].emplace(RunOverSsh(names[i], command, Deadline::In(kModelMs), kMostTextBytes));
        return Status();
    }));

    std::vector<Finding> findings;
    std::vector<Copy> copies;
    const auto add = [&](const std::string& name, const Result<std::string>& text, bool needed) {
        auto files =
            text.ok() ? ParseContent(*text) : Result<std::vector<FileContent>>(text.error());
        if (files.ok()) return copies.push_back({name, *std::move(files)});
        findings.push_back(NotRead(name == "this host" ? host : name, word, files.error().message,
                                   needed ? Severity::kFail : Severity::kNote));
    };
    add("this host", own, hosts.empty() || own.ok() || own.error().code != ErrorCode::kNotFound);
    for (size_t i = 0; i < hosts.size(); ++i) add(hosts[i], *texts[i], true);
    Findings compared(kModelCheck, host);
    if (!copies.empty()) Compare(copies, compared);
    for (Finding& finding : compared.Take()) findings.push_back(std::move(finding));
    return findings;
}

}  // namespace weft::doctor
