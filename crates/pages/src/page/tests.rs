//! Pages are whole, and hold hostile names as text.

use super::*;

#[test]
fn a_page_of_nothing_is_a_page() {
    let page = page("Nothing", "No files.", &[]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("<h1>Nothing</h1>") && page.contains("lang=\"en\""));
}

#[test]
fn a_table_has_a_caption_and_scopes_and_numbers_to_sort_by() {
    let mut table = Table::new("Times <b>", &["kernel", "#ms"]);
    table.row("k\"1", [Cell::text("<i>"), Cell::number(0.012345)]);
    table.row("", [Cell::text("two"), Cell::number(None)]);
    let html = shown_table(&table, "t");
    for part in [
        "<caption id=\"t-caption\">Times &lt;b&gt;</caption>",
        "<th scope=\"col\" class=\"number\">ms</th>",
        "<tr data-key=\"k&quot;1\"><th scope=\"row\">&lt;i&gt;</th><td class=\"number\" data-value=\"0.012345\">0.0123</td></tr>",
        "<td class=\"number\">–</td>",
        "tabindex=\"0\"",
    ] {
        assert!(html.contains(part), "{part} in {html}");
    }
}

#[test]
fn words_have_code_and_nothing_else() {
    assert_eq!(with_code("say `a < b` & <go>"), "say <code>a &lt; b</code> &amp; &lt;go&gt;");
}

#[test]
fn what_is_missing_names_its_command() {
    let part = Part::Missing { what: "None.".to_owned(), command: "make <it>".to_owned() };
    let section = Section { id: "x", title: "X".to_owned(), parts: vec![part] };
    assert!(shown_section(&section, &mut 0).contains("<code>make &lt;it&gt;</code>"));
}
