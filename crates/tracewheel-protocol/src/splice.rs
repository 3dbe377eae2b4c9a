//! Bodies around a prompt that is put in later.

use memchr::memmem;

use crate::{Provider, RenderRequest};

/// Stands for the prompt while a body is written: a character for private use, which JSON leaves as it is.
const MARK: &str = "\u{10FFFD}";

/// Writes the body of a request without its prompt into `out`, and at which offsets the prompt is missing into `places`,
/// ascending; both are cleared first. Put in there, text that JSON does not escape gives byte for byte what
/// [`Provider::render`] writes: words and spaces do. [`RenderRequest::prompt`] is not looked at.
///
/// False where the prompt can't be put in so: it goes as token ids, or the request holds this function's own mark.
pub fn render_around(
    provider: &dyn Provider,
    request: &RenderRequest<'_>,
    out: &mut Vec<u8>,
    places: &mut Vec<usize>,
) -> bool {
    places.clear();
    provider.render(&RenderRequest { prompt: "", ..*request }, out);
    if request.prompt_ids.is_some() || memmem::find(out, MARK.as_bytes()).is_some() {
        return false;
    }
    provider.render(&RenderRequest { prompt: MARK, ..*request }, out);
    places.extend(memmem::find_iter(out, MARK.as_bytes()));
    for (n, place) in places.iter_mut().enumerate() {
        *place -= n * MARK.len();
        out.drain(*place..*place + MARK.len());
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Engine, LimitField, PROVIDERS, Template, TokenDetail, provider};

    /// A body with the text put in.
    fn spliced(provider: &dyn Provider, request: &RenderRequest<'_>) -> Option<Vec<u8>> {
        let (mut out, mut places) = (b"left over".to_vec(), vec![1]);
        if !render_around(provider, request, &mut out, &mut places) {
            return None;
        }
        let mut whole = Vec::new();
        let mut from = 0;
        for place in places {
            whole.extend_from_slice(&out[from..place]);
            whole.extend_from_slice(request.prompt.as_bytes());
            from = place;
        }
        whole.extend_from_slice(&out[from..]);
        Some(whole)
    }

    #[test]
    fn a_prompt_that_is_no_text_or_a_mark_of_somebody_else_is_told() {
        let chat = provider("openai-chat").unwrap();
        let marked = format!("m{MARK}");
        assert_eq!(spliced(chat, &RenderRequest { model: &marked, ..RenderRequest::default() }), None);
        let ids = RenderRequest { prompt_ids: Some(&[1, 2]), ..RenderRequest::default() };
        assert_eq!(spliced(provider("openai-completions").unwrap(), &ids), None);
    }

    #[test]
    fn a_template_has_the_prompt_as_often_as_it_names_it() {
        let http = provider("http").unwrap();
        for text in
            ["{{prompt}}{{prompt}}", "none", "", "{\"a\":\"{{prompt}}\",\"b\":[{{raw:prompt}}]} {{model}}"]
        {
            let template = Template::parse(text).unwrap();
            let request = RenderRequest {
                prompt: " two words",
                template: Some(&template),
                model: "m",
                ..RenderRequest::default()
            };
            let expected = text.replace("{{prompt}}", " two words").replace("{{raw:prompt}}", " two words");
            let spliced = spliced(http, &request).unwrap();
            assert_eq!(String::from_utf8(spliced).unwrap(), expected.replace("{{model}}", "m"));
        }
    }

    proptest! {
        #[test]
        fn what_is_put_in_is_what_every_provider_writes(
            model in "\\PC{0,20}",
            prompt in "( [a-z]{2,6}){0,60}",
            max_tokens in any::<u32>(),
            completion_tokens in any::<bool>(),
            (stream, force_length) in any::<(bool, bool)>(),
            engine in prop::sample::select(vec![None, Some(Engine::Vllm), Some(Engine::LlamaCpp)]),
            temperature in 0.0..2.0_f64,
            params in prop::option::of("\\{\"(seed|top_p|x)\":[0-9]{1,4}\\}"),
            template in "[a-z{}\" ]{0,3}\\{\\{prompt\\}\\}[a-z{]{0,2}",
        ) {
            let template = Template::parse(&template).ok();
            let limit_field = if completion_tokens { LimitField::MaxCompletionTokens } else { LimitField::MaxTokens };
            let request = RenderRequest {
                model: &model,
                prompt: &prompt,
                max_tokens,
                limit_field,
                stream,
                force_length,
                engine,
                template: template.as_ref(),
                token_detail: TokenDetail::None,
                temperature,
                params: params.as_deref(),
                ..RenderRequest::default()
            };
            for provider in PROVIDERS {
                let mut whole = Vec::new();
                provider.render(&request, &mut whole);
                let spliced = spliced(*provider, &request).expect("text without the mark");
                prop_assert_eq!(String::from_utf8_lossy(&spliced), String::from_utf8_lossy(&whole), "{}", provider.name());
            }
        }
    }
}
