//! `#[derive(Key)]` for the crate `ebbtide`, whose feature `derive` has it: use it from there.
//!
//! ```text
//! struct Hit { page: String, hour: u32 }
//!
//! impl TypedKey for Hit     encodes page, then hour, as the tuple (String, u32) does
//! impl TupleKey for Hit     names that tuple, whose prefixes are the struct's
//! ```
//!
//! Invariant: the code that comes out names everything by its whole path, so no name of the program's can be in its way.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Field, Fields, GenericParam, Generics, Index, Member, Result,
    TypeParamBound, parse_quote,
};

/// Makes a struct a key of a typed container: its encoding is that of the tuple of its fields, in their order. So keys are
/// ordered by the first field that differs, and the first fields are a prefix. Every field is a `TypedKey` itself.
#[proc_macro_derive(Key)]
pub fn derive_key(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let parsed = syn::parse(input).and_then(|input| key(&input));
    parsed.unwrap_or_else(Error::into_compile_error).into()
}

/// The implementations for a struct.
fn key(input: &DeriveInput) -> Result<TokenStream> {
    let fields = fields_of(input)?;
    let generics = generics_of(&input.generics)?;
    let (impl_generics, type_generics, bounds) = generics.split_for_impl();
    let (name, last) = (&input.ident, fields.len() - 1);
    let types = Vec::from_iter(fields.iter().map(|field| &field.ty));
    let members = (0..).zip(&fields).map(|(at, field)| member(at, field));
    let members = Vec::from_iter(members);
    let read = (0..fields.len()).map(|at| format_ident!("field_{at}"));
    let read = Vec::from_iter(read);
    let is_last = (0..fields.len()).map(|at| match at == last {
        true => quote!(is_last),
        false => quote!(false),
    });
    let is_last = Vec::from_iter(is_last);
    let tuple = match &types[..] {
        [one] => quote!(#one),
        all => quote!((#(#all),*)),
    };
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::ebbtide::TypedKey for #name #type_generics #bounds {
            type Borrowed<'key> = &'key Self;

            fn as_borrowed(&self) -> &Self {
                self
            }

            fn encode(key: &&Self, is_last: bool, out: &mut ::std::vec::Vec<u8>) {
                #(
                    <#types as ::ebbtide::TypedKey>::encode(
                        &<#types as ::ebbtide::TypedKey>::as_borrowed(&key.#members),
                        #is_last,
                        out,
                    );
                )*
            }

            fn decode(
                is_last: bool,
                bytes: &mut &[u8],
            ) -> ::std::result::Result<Self, &'static str> {
                #(let #read = <#types as ::ebbtide::TypedKey>::decode(#is_last, bytes)?;)*
                ::std::result::Result::Ok(#name { #(#members: #read),* })
            }
        }

        #[automatically_derived]
        impl #impl_generics ::ebbtide::TupleKey for #name #type_generics #bounds {
            type Tuple = #tuple;
        }
    })
}

fn member(at: u32, field: &Field) -> Member {
    let span = field.span();
    match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index { index: at, span }),
    }
}

fn fields_of(input: &DeriveInput) -> Result<Vec<&Field>> {
    let name = &input.ident;
    let refuse = |span: Span, what: &str| Err(Error::new(span, what));
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(data) => {
            return refuse(
                data.enum_token.span,
                "`Key` is derived for structs: the order of an enum's variants is the program's to say. Implement \
                 `ebbtide::TypedKey` for it, or keep a number in the key",
            );
        }
        Data::Union(data) => {
            return refuse(
                data.union_token.span,
                "`Key` is derived for structs: nobody knows which field of a union is there",
            );
        }
    };
    if fields.is_empty() {
        let what = "`Key` needs a field: a key has 1 byte or more";
        return refuse(name.span(), what);
    }
    match fields {
        Fields::Named(fields) => Ok(fields.named.iter().collect()),
        Fields::Unnamed(fields) => Ok(fields.unnamed.iter().collect()),
        Fields::Unit => refuse(name.span(), "`Key` needs a field"),
    }
}

/// The generics of the implementations: every type is a key, and lives for ever, as what is decoded does.
fn generics_of(generics: &Generics) -> Result<Generics> {
    let mut generics = generics.clone();
    for parameter in &mut generics.params {
        match parameter {
            GenericParam::Lifetime(parameter) => {
                let what = "`Key` is derived for structs that own their fields: a key is read from the disk. Take `String` for \
                            `&str`, `Vec<u8>` for `&[u8]`";
                return Err(Error::new(parameter.span(), what));
            }
            GenericParam::Type(parameter) => {
                if let Some(bound) = parameter.bounds.iter().find(|bound| is_unsized(bound)) {
                    let what = "`Key` needs types of a known size: a key is decoded to a value. Remove `?Sized`";
                    return Err(Error::new(bound.span(), what));
                }
                parameter.bounds.push(parse_quote!(::ebbtide::TypedKey));
                parameter.bounds.push(parse_quote!('static));
            }
            GenericParam::Const(_) => {}
        }
    }
    let clause = generics.where_clause.as_ref();
    let predicates = clause.iter().flat_map(|clause| &clause.predicates);
    for predicate in predicates {
        if let syn::WherePredicate::Type(predicate) = predicate
            && let Some(bound) = predicate.bounds.iter().find(|bound| is_unsized(bound))
        {
            let what =
                "`Key` needs types of a known size: a key is decoded to a value. Remove `?Sized`";
            return Err(Error::new(bound.span(), what));
        }
    }
    Ok(generics)
}

fn is_unsized(bound: &TypeParamBound) -> bool {
    match bound {
        TypeParamBound::Trait(bound) => bound.maybe.is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message of a struct that is refused.
    fn refused(code: &str) -> String {
        let input = syn::parse_str::<DeriveInput>(code).unwrap();
        key(&input).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_key_is_refused_in_plain_words() {
        for (code, words) in [
            ("enum E { A, B }", "order of an enum's variants"),
            ("union U { a: u8 }", "which field of a union"),
            ("struct S;", "needs a field"),
            ("struct S {}", "needs a field"),
            ("struct S();", "needs a field"),
            ("struct S<'a> { a: &'a str }", "Take `String` for `&str`"),
            ("struct S<T: ?Sized> { a: Box<T> }", "Remove `?Sized`"),
            (
                "struct S<T> where T: ?Sized { a: Box<T> }",
                "Remove `?Sized`",
            ),
        ] {
            let message = refused(code);
            assert!(message.contains(words), "{code}: {message}");
        }
    }

    #[test]
    fn each_field_but_the_last_is_encoded_as_one_that_others_follow() {
        let code = "struct Hit { page: String, hour: u32, n: u8 }";
        let input = syn::parse_str::<DeriveInput>(code).unwrap();
        let out = key(&input).unwrap().to_string();
        assert_eq!(out.matches("false , bytes").count(), 2);
        assert_eq!(out.matches("is_last , bytes").count(), 1);
        assert!(out.contains("type Tuple = (String , u32 , u8)"), "{out}");
        let one = syn::parse_str::<DeriveInput>("struct UserId(u64);").unwrap();
        let out = key(&one).unwrap().to_string();
        assert!(out.contains("type Tuple = u64"), "{out}");
    }
}
