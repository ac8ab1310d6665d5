#include "serve/api/media.h"

#include <string>

namespace weft::serve {
namespace {

// Words within the types of parts, and the notes.
struct Medium {
    std::string_view word, note;
};
constexpr Medium kMedia[] = {{"image", kImageNote},
                             {"screenshot", kImageNote},
                             {"audio", "[a recording, which this model cannot hear]"},
                             {"video", "[a video, which this model cannot see]"},
                             {"document", "[a document, which this model cannot read]"},
                             {"file", "[a file, which this model cannot read]"},
                             {"upload", "[a file, which this model cannot read]"}};

// The note for a part of a content; "": the part may be text.
std::string_view NoteOf(const Json& part) {
    if (!part.is_object()) return "";
    Fields fields(part);
    const std::string type = fields.Text("type", "");
    const std::string source = Fields(fields.Object("source")).Text("type", "");
    if (type == "document" && (source == "text" || source == "content")) return "";
    for (const auto& [word, note] : kMedia) {
        if (type.find(word) != std::string::npos) return note;
    }
    return "";
}

// Ollama's `images`: notes behind the text of the member `text`.
void NoteImages(Json& json, const char* text) {
    const auto images = json.find("images");
    if (images == json.end() || !images->is_array() || images->empty()) return;
    std::string words = Fields(json).Text(text, "");
    for (size_t i = 0; i < images->size(); ++i) {
        if (!words.empty()) words += '\n';
        words += kImageNote;
    }
    json.erase("images");
    json[text] = std::move(words);
}

void NoteMessage(Json& message, bool everywhere) {
    if (!message.is_object()) return;
    const std::string role = Fields(message).Text("role", "");
    if (!everywhere && role != "tool" && role != "function") return;
    NoteImages(message, "content");
    const auto content = message.find("content");
    if (content == message.end() || !content->is_array()) return;
    for (Json& part : *content) {
        const std::string_view note = NoteOf(part);
        if (!note.empty()) part = {{"type", "text"}, {"text", note}};
    }
}

}  // namespace

void NoteMedia(Json& body, bool everywhere) {
    if (everywhere) NoteImages(body, "prompt");
    for (const char* name : {"messages", "input"}) {
        const auto list = body.find(name);
        if (list == body.end() || !list->is_array()) continue;
        for (Json& message : *list) NoteMessage(message, everywhere);
    }
}

}  // namespace weft::serve
