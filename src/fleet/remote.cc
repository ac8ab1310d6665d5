#include "fleet/remote.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/child_process.h"
#include "base/memory_file.h"
#include "fleet/cluster_file.h"

namespace weft::fleet {
namespace {

constexpr int64_t kWordsMs = 30'000;   // for a script
constexpr int64_t kCopyMs = 300'000;   // for a program of some 20 MB over Wi-Fi
constexpr int64_t kDoctorMs = 60'000;  // for all its checks
constexpr size_t kMostPrinted = 1 << 20;
constexpr uint64_t kMostPacked = uint64_t{1} << 30;  // for a program with its libraries
constexpr int kOtherKey = 9;                         // exit status of the script

constexpr const char* kProbe = R"sh(PATH=$PATH:$HOME/.local/bin
echo
echo "weft-probe"
echo "machine=$(uname -m)"
echo "name=$(hostname 2>/dev/null || uname -n)"
echo "kernel=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)$(readlink /proc/self/ns/net)"
program=$(command -v weft)
if [ -n "$program" ]; then
    echo "program=$program"
    echo "version=$("$program" --version 2>/dev/null | head -n 1)"
fi
if systemctl --user show-environment >/dev/null 2>&1; then
    echo "systemd=yes"
    echo "linger=$(loginctl show-user "$(id -un)" --property=Linger 2>/dev/null)"
fi
echo "weft-end"
)sh";

// Beginning of kStart and kStop; needs the variable cluster. Hosts may share one home folder (NFS):
// files of one host have its name after a colon, which no cluster's name contains.
constexpr const char* kHere = R"sh(config=${XDG_CONFIG_HOME:-$HOME/.config}
units=$config/systemd/user
state=${XDG_STATE_HOME:-$HOME/.local/state}/weft
file=$config/weft/clusters/$cluster.key
host=$(uname -n)
own=$cluster:$host

# Ends the process that the file $1 names, if it is this cluster's 'up'. The number may be of
# another host, or of another process since a boot.
end_process() {
    pid=$(cat "$1" 2>/dev/null)
    case $(cat "/proc/$pid/cmdline" 2>/dev/null | tr "\0" " ") in
        *weft*" up --cluster $cluster ") kill "$pid" && sleep 1 && rm -f "$1" ;;
    esac
}

end_unit() {
    [ -e "$units/$1.service" ] || return 0
    systemctl --user disable --now "$1" 2>/dev/null
    rm -f "$units/$1.service"
    systemctl --user daemon-reload 2>/dev/null
}

# (Earlier versions named the file without the host.)
end_processes() {
    end_process "$state/up-$cluster.pid"
    end_process "$state/up-$own.pid"
}
)sh";

// Needs key, program, systemd and kHere.
constexpr const char* kStart = R"sh(set -u
umask 077
if [ -e "$file" ] && [ "$(cat "$file")" != "$key" ]; then
    echo "$file" >&2
    exit 9
fi
mkdir -p "$config/weft/clusters" || exit
new=$file.$host.$$
printf '%s\n' "$key" >"$new" && mv "$new" "$file" || exit
end_processes
if [ "$systemd" = yes ]; then
    end_unit "weft-up-$cluster"
    mkdir -p "$units" || exit
    cat >"$units/weft-up-$own.service" <<UNIT || exit
[Unit]
Description=Weft: a host of the cluster $cluster
ConditionHost=$host

[Service]
ExecStart="$program" up --cluster $cluster
Restart=always
RestartSec=2
LimitMEMLOCK=infinity

[Install]
WantedBy=default.target
UNIT
    systemctl --user daemon-reload && systemctl --user enable "weft-up-$own" 2>/dev/null &&
        systemctl --user restart "weft-up-$own"
    exit
fi
mkdir -p "$state" || exit
setsid "$program" up --cluster "$cluster" </dev/null >"$state/up-$own.log" 2>&1 &
echo $! >"$state/up-$own.pid"
sleep 1
kill -0 $! 2>/dev/null && exit 0
cat "$state/up-$own.log" >&2
exit 1
)sh";

// Needs token and kHere. Deletes the key with the last host of this home folder: an added host left
// a file there, the requesting host left the token.
constexpr const char* kStop = R"sh(end_processes
rm -f "$state/up-$own.pid"
end_unit "weft-up-$own"
for other in "$config/weft/clusters/$token" "$state/up-$cluster:"*.pid \
    "$units/weft-up-$cluster:"*.service; do
    [ -e "$other" ] || continue
    [ ! -e "$units/weft-up-$cluster.service" ] || systemctl --user stop "weft-up-$cluster"
    printf '\nweft-key-stays\n'
    exit 0
done
end_unit "weft-up-$cluster"
rm -f "$file" "$state/up-$cluster.pid"
)sh";

// For a single program, and for a tar archive with its libraries (tools/carry.py). Several may run
// at once on hosts that share one home folder.
constexpr const char* kCopy =
    "new=\"$HOME/.local/bin/weft.new.$(uname -n).$$\"; trap \"rm -f \\\"$new\\\"\" EXIT; mkdir -p "
    "\"$HOME/.local/bin\" && "
    "cat >\"$new\" && chmod 755 \"$new\" && mv \"$new\" \"$HOME/.local/bin/weft\" && ";
constexpr const char* kUnpack =
    "new=.weft.new.$(uname -n).$$; trap \"rm -rf $new\" EXIT; mkdir -p \"$HOME/.local/bin\" "
    "\"$HOME/.local/lib/weft\" && "
    "cd \"$HOME/.local\" && mkdir $new && tar -xf - -C $new && "
    "rm -rf lib/weft/carried && mv $new/lib/weft/carried lib/weft/ && "
    "mv $new/bin/weft bin/weft && ";
constexpr const char* kTry =
    "\"$HOME/.local/bin/weft\" --version >/dev/null && echo \"at=$HOME/.local/bin/weft\"";

Result<Fd> FileWith(std::string_view text) {
    Fd fd = MemoryFile("weft");
    const bool good = fd.valid() && ::write(fd.get(), text.data(), text.size()) ==
                                        static_cast<ssize_t>(text.size());
    if (!good || ::lseek(fd.get(), 0, SEEK_SET) != 0) {
        return MakeError(ErrorCode::kIo, "memfd: {}", std::strerror(errno));
    }
    return fd;
}

// Runs `command` there with standard input from `input`.
Result<ChildResult> RunThere(const std::string& ssh, const std::string& command, int input,
                             const Deadline& deadline) {
    ChildOptions options;
    options.input = input;
    options.max_output_bytes = kMostPrinted;
    options.name = "ssh to " + ssh;
    auto ran = RunChild(
        {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-T", "--", ssh, command},
        deadline, options);
    if (ran.ok()) return ran;
    const std::string hint = ran.error().code == ErrorCode::kNotFound ? ". Install openssh-client"
                             : ran.error().code == ErrorCode::kUnsupported
                                 ? ". Does a login script there print without end?"
                                 : "";
    return MakeError(ran.error().code, "{}{}", ran.error().message, hint);
}

std::string LastLine(std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    const size_t at = text.rfind('\n');
    std::string line = at == text.npos ? text : text.substr(at + 1);
    for (char& letter : line) {
        if ((letter >= 0 && letter < ' ') || letter == 127) letter = '?';
    }
    return line.empty() ? "it said nothing" : line;
}

Error FailedThere(const std::string& ssh, const ChildResult& ran) {
    constexpr int kStatusOfSsh = 255;
    if (ran.status == kStatusOfSsh) {
        return MakeError(ErrorCode::kIo,
                         "ssh to {}: {}. 'ssh {} true' must answer without a password: "
                         "'ssh-copy-id {}' brings your key there",
                         ssh, LastLine(ran.err), ssh, ssh);
    }
    return MakeError(ErrorCode::kIo, "on {}: status {}: {}", ssh, ran.status, LastLine(ran.err));
}

Result<ChildResult> RunScript(const std::string& ssh, const std::string& script, int64_t ms) {
    WEFT_ASSIGN(const Fd input, FileWith(script));
    return RunThere(ssh, "sh -s", input.get(), Deadline::In(ms));
}

// The text becomes an argument of ssh.
Status CheckSshWord(const std::string& ssh) {
    const auto odd = [](char letter) {
        const bool letters = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                             (letter >= '0' && letter <= '9');
        return !letters && std::string_view("._-@:[]%").find(letter) == std::string_view::npos;
    };
    if (!ssh.empty() && ssh.size() <= 64 && ssh[0] != '-' && std::ranges::none_of(ssh, odd)) {
        return {};
    }
    return MakeError(ErrorCode::kUsage, "'{}': expected HOST or USER@HOST", ssh);
}

// Quotes for sh a text without quotes.
Result<std::string> QuotedForShell(const std::string& text) {
    const auto odd = [](char letter) { return letter < ' ' || letter > '~' || letter == '\''; };
    if (std::ranges::none_of(text, odd)) return "'" + text + "'";
    return MakeError(
        ErrorCode::kUnsupported,
        "cannot send a key or path with quotes, control characters or bytes outside ASCII");
}

Result<Fd> OwnProgram() {
    Fd program(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    if (program.valid()) return program;
    return MakeError(ErrorCode::kIo, "/proc/self/exe: {}", std::strerror(errno));
}

// The program under a prefix, with its libraries, packed by tar(1).
Result<Fd> PackedTree(const std::string& prefix) {
    ChildOptions options;
    options.max_output_bytes = kMostPacked;
    WEFT_ASSIGN(const ChildResult packed,
                RunChild({"tar", "-C", prefix, "-chf", "-", "bin/weft", "lib/weft/carried"},
                         Deadline::In(kCopyMs), options));
    if (packed.status == 0) return FileWith(packed.out);
    return MakeError(ErrorCode::kIo, "cannot pack {}: tar: {}", prefix, LastLine(packed.err));
}

// A file with a unique name in a folder: a host that sees it shares the folder with this one.
// Deleted with the object.
class Token {
  public:
    Token() = default;
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;
    ~Token() {
        if (!path_.empty()) ::unlink(path_.c_str());
    }
    Status Write(const std::string& folder) {
        path_ = folder + "/.shared-XXXXXX";
        const Fd file(::mkostemp(path_.data(), O_CLOEXEC));
        if (file.valid()) return {};
        path_.clear();
        return MakeError(ErrorCode::kIo, "cannot make a file in {}: {}", folder,
                         std::strerror(errno));
    }
    std::string name() const { return path_.substr(path_.rfind('/') + 1); }

  private:
    std::string path_;
};

}  // namespace

Result<RemoteHost> ParseProbe(const std::string& ssh, const std::string& printed) {
    RemoteHost host;
    const size_t begin = printed.find("\nweft-probe\n");
    const size_t end = printed.find("\nweft-end\n", begin == printed.npos ? 0 : begin);
    if (begin == printed.npos || end == printed.npos) {
        return MakeError(ErrorCode::kCorrupt,
                         "the output of {} is not the expected answer of a shell: '{}'. Can its "
                         "login shell run 'sh'?",
                         ssh, LastLine(printed.substr(0, 4096)));
    }
    std::string_view text = std::string_view(printed).substr(begin + 12, end - begin - 12);
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const size_t equals = std::min(line.find('='), line.size());
        const std::string_view key = line.substr(0, equals);
        const std::string value(line.substr(std::min(equals + 1, line.size())));
        if (key == "machine") host.machine = value;
        if (key == "name") host.name = value.substr(0, value.find('.'));
        if (key == "kernel") host.kernel = value;
        if (key == "program") host.program = value;
        if (key == "version") host.version = value;
        if (key == "systemd") host.systemd = value == "yes";
        if (key == "linger") host.linger = value == "Linger=yes";
    }
    return host;
}

Result<RemoteHost> ProbeHost(const std::string& ssh) {
    WEFT_TRY(CheckSshWord(ssh));
    WEFT_ASSIGN(const ChildResult ran, RunScript(ssh, kProbe, kWordsMs));
    if (ran.status != 0) return FailedThere(ssh, ran);
    return ParseProbe(ssh, ran.out);
}

Result<std::string> CopyProgram(const std::string& ssh) {
    WEFT_TRY(CheckSshWord(ssh));
    std::error_code failed;
    const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", failed);
    const std::filesystem::path prefix = here.parent_path().parent_path();
    const bool carries = !failed && here.filename() == "weft" &&
                         here.parent_path().filename() == "bin" &&
                         std::filesystem::is_directory(prefix / "lib/weft/carried", failed);
    WEFT_ASSIGN(const Fd sent, carries ? PackedTree(prefix) : OwnProgram());
    WEFT_ASSIGN(const ChildResult ran,
                RunThere(ssh, fmt::format("exec sh -c '{}{}'", carries ? kUnpack : kCopy, kTry),
                         sent.get(), Deadline::In(kCopyMs)));
    const size_t at = ran.out.rfind("at=");
    if (ran.status == 0 && at != ran.out.npos) {
        return ran.out.substr(at + 3, ran.out.find('\n', at) - at - 3);
    }
    const bool libraries = ran.err.find("shared libraries") != std::string::npos ||
                           ran.err.find("GLIBC") != std::string::npos;
    const Error error = FailedThere(ssh, ran);
    if (!libraries) return error;
    return MakeError(ErrorCode::kIo,
                     "{}. This program needs libraries that are not there: install weft on {} from "
                     "its .deb or tar (docs/install.md), then add it again",
                     error.message, ssh);
}

Result<UpKind> StartUp(const std::string& ssh, const std::string& cluster, const std::string& key,
                       const std::string& program, bool systemd) {
    WEFT_TRY(CheckSshWord(ssh));
    WEFT_ASSIGN(const std::string quoted_key, QuotedForShell(key));
    WEFT_ASSIGN(const std::string quoted_program, QuotedForShell(program));
    const std::string script =
        fmt::format("key={}\ncluster={}\nprogram={}\nsystemd={}\n{}{}", quoted_key, cluster,
                    quoted_program, systemd ? "yes" : "no", kHere, kStart);
    WEFT_ASSIGN(const ChildResult ran, RunScript(ssh, script, kWordsMs));
    if (ran.status == 0) return systemd ? UpKind::kSystemd : UpKind::kProcess;
    if (ran.status != kOtherKey) return FailedThere(ssh, ran);
    return MakeError(ErrorCode::kDenied,
                     "{} has another key of a cluster '{}' ({}): it is a host of another cluster. "
                     "Remove that file to take it from there, or name this cluster otherwise",
                     ssh, cluster, LastLine(ran.err));
}

Result<bool> StopUp(const std::string& ssh, const std::string& cluster) {
    WEFT_TRY(CheckSshWord(ssh));
    WEFT_ASSIGN(const ClusterPaths paths, PathsOf(cluster));
    Token token;
    WEFT_TRY(token.Write(paths.folder));
    const std::string script =
        fmt::format("cluster={}\ntoken={}\n{}{}", cluster, token.name(), kHere, kStop);
    WEFT_ASSIGN(const ChildResult ran, RunScript(ssh, script, kWordsMs));
    if (ran.status != 0) return FailedThere(ssh, ran);
    return ran.out.find("\nweft-key-stays\n") == ran.out.npos;
}

Result<std::string> RunDoctor(const std::string& ssh, const std::string& program) {
    WEFT_TRY(CheckSshWord(ssh));
    WEFT_ASSIGN(const std::string quoted, QuotedForShell(program));
    WEFT_ASSIGN(const ChildResult ran,
                RunScript(ssh, quoted + " doctor --no-measure\n", kDoctorMs));
    if (!ran.out.empty()) return ran.out;
    return FailedThere(ssh, ran);
}

}  // namespace weft::fleet
