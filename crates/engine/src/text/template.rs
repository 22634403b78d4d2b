//! Chat templates: the Jinja programs in model files that turn a chat into text.

use std::fmt;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::{Deserialize, Serialize};

use super::error::{Problem, TextError, one_line};

/// What one render may spend, in the template engine's units (about one a step, and one for each
/// 64 bytes made). A template comes with a model file, so it is not trusted to end.
const FUEL: u64 = 10_000_000;

/// The name under which the engine knows the template, as its messages print it.
const NAME: &str = "chat_template";

/// One message of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What they say.
    pub content: String,
}

/// A compiled chat template.
///
/// It sees `messages`, `add_generation_prompt`, `bos_token`, `eos_token` and the function
/// `raise_exception(message)`, with the white-space rules and the Python methods that templates
/// are written for. Nothing in it can reach files or the network.
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: Arc<str>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles `source`. `bos` and `eos` are the texts of those tokens.
    ///
    /// # Errors
    /// If `source` is no template.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the default delimiters"));
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
        });
        environment.template_from_named_str(NAME, source).map_err(|error| problem(&error))?;
        Ok(Self { environment, source: source.into(), bos: bos.into(), eos: eos.into() })
    }

    /// The text of a chat; with `add_generation_prompt`, up to where the assistant speaks next.
    ///
    /// # Errors
    /// If the template refuses the chat (a role it does not know, say), or fails.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TextError> {
        let context = context! {
            messages => Value::from(Serde(messages)),
            add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let rendered = self.environment.render_named_str(NAME, &self.source, context);
        Ok(rendered.map_err(|error| problem(&error))?)
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

/// A template's own refusal, told apart from its failures.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn problem(error: &Error) -> Problem {
    let raised = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Raised>());
    match raised {
        Some(Raised(message)) => Problem::Refused(one_line(message)),
        None => Problem::Template(one_line(&error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(messages: &[(&str, &str)]) -> Vec<Message> {
        let message =
            |(role, content): &(&str, &str)| Message { role: (*role).into(), content: (*content).into() };
        messages.iter().map(message).collect()
    }

    fn render(source: &str, messages: &[(&str, &str)], generate: bool) -> Result<String, String> {
        let template = ChatTemplate::new(source, "<s>", "</s>").map_err(|e| e.to_string())?;
        template.render(&chat(messages), generate).map_err(|e| e.to_string())
    }

    #[test]
    fn a_template_sees_messages_tokens_and_the_flag() {
        let source = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}:{{ m.content | trim }}]{{ eos_token }}{% endfor %}\
                      {% if add_generation_prompt %}[assistant:{% endif %}";
        let messages = [("user", " <b> \"hi\"\n"), ("assistant", "é")];
        assert_eq!(
            render(source, &messages, true).unwrap(),
            "<s>[user:<b> \"hi\"]</s>[assistant:é]</s>[assistant:"
        );
        assert_eq!(render(source, &messages, false).unwrap(), "<s>[user:<b> \"hi\"]</s>[assistant:é]</s>");
    }

    #[test]
    fn white_space_and_methods_are_those_templates_are_written_for() {
        let source = "{% for m in messages %}\n    {% if m.role.startswith('us') %}\n{{ m.content.strip().upper() }}\n    {% endif %}\n{% endfor %}\n";
        assert_eq!(render(source, &[("user", " a "), ("tool", "b")], false).unwrap(), "A\n");
        let source = "{%- set ns = namespace(n=0) -%}{%- for m in messages -%}{%- set ns.n = ns.n + 1 -%}{%- endfor -%}\
                      {{ ns.n }}{{ messages[1:] | length }}{{ messages[-1]['content'].split('|')[0] }}{{ tools is defined }}{{ messages[0].name }}";
        assert_eq!(render(source, &[("user", "a"), ("user", "x|y")], false).unwrap(), "21xFalse");
    }

    #[test]
    fn a_refusal_and_a_failure_are_one_line_each() {
        let source = "{% if messages[0].role != 'user' %}{{ raise_exception('the first\nmust be the user') }}{% endif %}ok";
        assert_eq!(render(source, &[("user", "a")], false).unwrap(), "ok");
        assert_eq!(
            render(source, &[("tool", "a")], false).unwrap_err(),
            "the chat template refuses this chat: the first must be the user"
        );
        let syntax = render("a\n{% for %}", &[], false).unwrap_err();
        assert!(
            syntax.starts_with("the chat template failed: ") && syntax.contains("chat_template:2"),
            "{syntax}"
        );
        let filter = render("{{ 1 | no_such_filter }}", &[], false).unwrap_err();
        assert!(filter.contains("no_such_filter") && !filter.contains('\n'), "{filter}");
    }

    #[test]
    fn a_template_that_does_not_end_is_stopped() {
        let nested = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
        assert!(render(nested, &[], false).unwrap_err().contains("fuel"));
        let long = "{{ ('a' * 10000000) * 1000 }}";
        assert!(render(long, &[], false).unwrap_err().contains("fuel"));
        // A chat of a megabyte is no such template.
        let megabyte = "x".repeat(1 << 20);
        let source = "{% for m in messages %}{{ m.role + m.content }}{% endfor %}";
        assert_eq!(render(source, &[("user", &megabyte)], false).unwrap().len(), 4 + (1 << 20));
    }
}
