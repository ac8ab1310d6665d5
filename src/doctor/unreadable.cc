#include "doctor/unreadable.h"

#include <algorithm>

#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostErrorLines = 12, kMostErrorBytes = 1500;

// Messages of bash, dash, zsh, fish and distributions' command-not-found helpers, and of the C
// library in German, French, Spanish, Italian, Portuguese, Russian, Chinese and Japanese.
constexpr std::string_view kNoSuchTexts =
    "command not found|Unknown command: |not found, but can be installed|not found, did you mean|"
    "is not in your PATH|: not found|No such file or directory|Kommando nicht gefunden|Befehl "
    "nicht gefunden|Datei oder Verzeichnis nicht gefunden|commande introuvable|Aucun fichier ou "
    "dossier de ce|orden no encontrada|No existe el fichero o el directorio|No existe el archivo "
    "o el directorio|comando non trovato|File o directory non esistente|comando não encontrado|"
    "команда не найдена|Нет такого файла|未找到命令|"
    "コマンドが見つかりません";
constexpr std::string_view kNotShownTexts =
    "did not end within|no time left for it|Operation not permitted|Permission denied|permission "
    "denied|must be root|need to be root|"
    "requires root|are you root|not authorized|Not authorized|Failed to connect to bus|not been "
    "booted with systemd|a password is required|a terminal is required|is not in the sudoers "
    "file|Is a directory|Invalid argument|Input/output error|Connection refused|No route to host|"
    "is unknown, try \"ip -help\"|Die Operation ist nicht erlaubt|Vorgang nicht zulässig|Keine "
    "Berechtigung|Opération non permise|Permission non accordée|Operación no permitida|"
    "Permiso denegado|Operazione non permessa|Permesso negato|Операция не "
    "позволена|Отказано в доступе|不允许的操作|权限不够|"
    "許可されていない操作です";

void CutPart(std::string& text, std::string_view begin, std::string_view end) {
    for (size_t at = text.find(begin); at != text.npos; at = text.find(begin, at)) {
        const size_t last = text.find(end, at);
        if (last == text.npos) return;
        const size_t line = text.find('\n', last + end.size());
        text.erase(at, line == text.npos ? text.npos : line + 1 - at);
    }
}

// "[sudo] password for ada: " precedes the first line of output, without a newline if the input was
// not echoed.
void CutPrompts(std::string& text) {
    for (size_t at = 0; (at = text.find("[sudo", at)) != text.npos;) {
        const size_t end = text.find(": ", at);
        const size_t line = text.find('\n', at);
        if (end == text.npos || end > line || (at > 0 && text[at - 1] != '\n')) return;
        text.erase(at, end + 2 - at);
        if (text.compare(at, 1, "\n") == 0) text.erase(at, 1);
    }
}

// UTF-16 with a byte order mark, as PowerShell writes: ASCII characters stay, others become '?'.
std::string FromUtf16(std::string_view text) {
    const size_t high = text.starts_with("\xff\xfe") ? 1 : 0;
    std::string plain;
    for (size_t i = 2; i + 1 < text.size(); i += 2) {
        plain += text[i + high] == '\0' ? text[i + 1 - high] : '?';
    }
    return plain;
}

}  // namespace

std::string TidiedOutput(std::string text) {
    constexpr std::string_view kMark = "\xef\xbb\xbf";
    if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) text = FromUtf16(text);
    if (text.starts_with(kMark)) text.erase(0, kMark.size());
    while (text.ends_with('\0')) text.pop_back();
    if (text.find('\r') != text.npos) {
        size_t kept = 0;
        for (size_t i = 0; i < text.size(); ++i) {
            const bool ends = text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n';
            if (!ends) text[kept++] = text[i];
        }
        text.resize(kept);
    }
    if (Contains(text, "[sudo") || Contains(text, "We trust you have received")) {
        CutPart(text, "We trust you have received", "great responsibility.");
        CutPart(text, "For security reasons, the password", "not be visible.");
        CutPrompts(text);
        text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
    }
    return text;
}

Said ClassifyOutput(std::string_view text) {
    if (text.size() > kMostErrorBytes || Trim(text).empty()) return Said::kOutput;
    const auto lines = Lines(text);
    if (lines.size() > kMostErrorLines) return Said::kOutput;
    const std::string_view first = Lines(Trim(text))[0];
    // Text that begins like a JSON list or value is not an error, whatever names it contains.
    if (first.starts_with('[') || first.starts_with('{')) return Said::kOutput;
    if (ContainsAny(first, kNoSuchTexts)) return Said::kNoSuch;
    return ContainsAny(first, kNotShownTexts) ? Said::kNotShown : Said::kOutput;
}

}  // namespace weft::doctor
